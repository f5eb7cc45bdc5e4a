# Cells of Perl in package main; the last value is shown where a cell prints nothing else of it.
# Runs inside a sandbox, in the interpreter that keeps the state.
package Sandboxer::Cells;
open(my $code_in, "<&=", delete $ENV{SANDBOXER_CODE}) or die $!;
open(my $control, ">&=", delete $ENV{SANDBOXER_CONTROL}) or die $!;
delete $ENV{SANDBOXER_FLAG};
binmode $code_in;
binmode $control;
select((select($control), $| = 1)[0]);
select(STDERR); $| = 1;
select(STDOUT); $| = 1;
my $running = 0;
$SIG{INT} = sub { die "interrupted\n" if $running };

sub answer {
    my ($word, $text) = @_;
    utf8::encode($text) if utf8::is_utf8($text);
    print {$control} "$word " . length($text) . "\n" . $text;
}

sub evaluate {
    package main;
    no strict;
    # What is declared at the outermost level is kept for the cells that follow.
    $_[0] =~ s/^my(?=\s*[\$\@%(])/our/mg;
    my @found = eval "no strict; package main;\n#line 1 \"<cell $_[1]>\"\n" . $_[0];
    die $@ if $@;
    return @found;
}

print {$control} "end 0 0\n";
while (defined(my $head = readline($code_in))) {
    my ($n, $size) = split " ", $head;
    my $code = "";
    read($code_in, $code, $size);
    my $status = 0;
    $running = 1;
    my @values = eval { evaluate($code, $n) };
    $running = 0;
    if (my $error = $@) {
        $status = 1;
        my $name = ref($error) || ($error =~ /^interrupted\n\z/ ? "Interrupted" : $error =~ /syntax error/ ? "SyntaxError" : "Error");
        answer("ename", $name);
        answer("evalue", "$error");
        answer("trace", "$error");
    } elsif ($code !~ /\b(print|say|printf)\b/ && @values && defined $values[-1] && $code !~ /;\s*\z/) {
        answer("value", join(" ", map { defined $_ ? "$_" : "undef" } @values));
    }
    print {$control} "end $status $n\n";
}
