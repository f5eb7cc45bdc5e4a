# Cells of fish. Runs inside a sandbox, in the shell that keeps the state.
function __sandboxer_interrupted --on-signal INT
end
echo end 0 0 >@CONTROL@
while read -l __sandboxer_n
    read -lz __sandboxer_code
    set -l __sandboxer_number $__sandboxer_n
    eval $__sandboxer_code </dev/null
    echo end $status $__sandboxer_number >@CONTROL@
end <@CODE@
