<?php
// Cells of PHP in the global scope. Runs inside a sandbox, in the interpreter that keeps the state.
$GLOBALS["__sandboxer"] = (object) [
    "code" => fopen("php://fd/" . getenv("SANDBOXER_CODE"), "rb"),
    "control" => fopen("php://fd/" . getenv("SANDBOXER_CONTROL"), "wb"),
    "running" => false,
];
foreach (["SANDBOXER_CODE", "SANDBOXER_CONTROL", "SANDBOXER_FLAG"] as $__name) putenv($__name);
unset($__name);
function __sandboxer_answer(string $word, string $text): void {
    fwrite($GLOBALS["__sandboxer"]->control, $word . " " . strlen($text) . "\n" . $text);
}
function __sandboxer_next(): ?array {
    $head = fgets($GLOBALS["__sandboxer"]->code);
    if ($head === false) return null;
    [$n, $size] = array_map("intval", explode(" ", $head));
    $code = "";
    while (strlen($code) < $size) $code .= fread($GLOBALS["__sandboxer"]->code, $size - strlen($code));
    return [$n, preg_replace('/^\s*<\?php\b/', "", $code)];
}
ini_set("display_errors", "stderr");
ini_set("html_errors", "0");
ini_set("log_errors", "0");
ob_implicit_flush(true);
set_time_limit(0);
if (function_exists("pcntl_async_signals")) {
    pcntl_async_signals(true);
    pcntl_signal(SIGINT, function () {
        if ($GLOBALS["__sandboxer"]->running) throw new Exception("interrupted");
    });
}
fwrite($__sandboxer->control, "end 0 0\n");
while (($__cell = __sandboxer_next()) !== null) {
    $__status = 0;
    try {
        $__sandboxer->running = true;
        try {
            // An expression has a value to show; whatever does not parse as one is run as it is.
            $__value = eval("return " . rtrim($__cell[1], "; \n\t") . ";");
        } catch (ParseError) {
            $__value = eval($__cell[1] . ";");
        }
        $__sandboxer->running = false;
        if ($__value !== null) __sandboxer_answer("value", var_export($__value, true));
    } catch (Throwable $__error) {
        $__sandboxer->running = false;
        $__status = 1;
        __sandboxer_answer("ename", get_class($__error));
        __sandboxer_answer("evalue", $__error->getMessage());
        __sandboxer_answer("trace", (string) $__error);
    }
    fwrite($__sandboxer->control, "end $__status {$__cell[0]}\n");
}
