# Cells of elvish: each is evaluated in the namespace that the one before it left.
# Runs inside a sandbox, in the shell that keeps the state.
use file
var codes = (file:open @CODE@)
fn tell {|status n| echo 'end '$status' '$n >@CONTROL@ }
var space = (ns [&])
tell 0 0
while $true {
  var n = (read-line < $codes)
  var code = (read-upto "\x00" < $codes)
  set code = $code[..-1]
  var status = 0
  try {
    eval $code &ns=$space &on-end={|after| set space = $after }
  } catch e {
    set status = 1
    echo (to-string $e[reason]) >&2
  }
  tell $status $n
}
