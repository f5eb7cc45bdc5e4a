// Cells of Java by the JDK's own jshell: what they declare stays, and the value of the last expression is shown.
// Runs inside a sandbox, in the interpreter that keeps the state.
import java.io.BufferedInputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis.Completeness;
import jdk.jshell.execution.LocalExecutionControlProvider;
import sun.misc.Signal;

class Driver {
    // As jshell itself imports when a person starts it.
    static final String[] IMPORTS = {
        "java.io", "java.math", "java.net", "java.nio.file", "java.util", "java.util.concurrent",
        "java.util.function", "java.util.regex", "java.util.stream"
    };

    static InputStream cells;
    static OutputStream control;
    static JShell shell;
    static volatile boolean isRunning, isStopped;

    public static void main(String[] fds) throws Exception {
        cells = new BufferedInputStream(new FileInputStream("/dev/fd/" + fds[0]));
        control = new FileOutputStream("/dev/fd/" + fds[1]);
        // Java cannot change its variables, so they are properties too, which a cell can change.
        System.getenv().forEach((name, value) -> {
            if (!name.startsWith("SANDBOXER_")) System.getProperties().putIfAbsent(name, value);
        });
        shell = JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
        for (String name : IMPORTS) shell.eval("import " + name + ".*;");
        Signal.handle(new Signal("INT"), signal -> {
            isStopped = isRunning;
            if (isRunning) shell.stop();
        });
        say("end 0 0\n");
        for (String head; (head = readLine()) != null; ) {
            String[] words = head.split(" ");
            String code = new String(cells.readNBytes(Integer.parseInt(words[1])), StandardCharsets.UTF_8);
            int status = run(code);
            System.out.flush();
            System.err.flush();
            say("end " + status + " " + words[0] + "\n");
        }
        System.exit(0);
    }

    static int run(String code) throws IOException {
        isStopped = false;
        String value = "";
        for (String rest = code; !rest.isBlank(); ) {
            var next = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            if (next.completeness() == Completeness.EMPTY) break;
            boolean isComplete = next.completeness().isComplete();
            isRunning = true;
            var events = shell.eval(isComplete ? next.source() : rest);
            isRunning = false;
            rest = isComplete ? next.remaining() : "";
            if (isStopped) return complain("Interrupted", "interrupted", "interrupted");
            for (SnippetEvent event : events) {
                // Others were declared before, and change by what this one declares.
                if (event.causeSnippet() != null) continue;
                if (event.exception() != null) return complain(event.exception());
                if (event.status() == Snippet.Status.REJECTED) return refuse(event.snippet());
                value = isExpression(event.snippet()) && event.value() != null ? event.value() : "";
            }
        }
        if (!value.isEmpty() && !value.equals("null")) answer("value", value);
        return 0;
    }

    static boolean isExpression(Snippet snippet) {
        return snippet.kind() == Snippet.Kind.EXPRESSION
            || snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    static int complain(JShellException thrown) throws IOException {
        String name = thrown instanceof EvalException
            ? ((EvalException) thrown).getExceptionClassName() : thrown.getClass().getName();
        String said = thrown.getMessage() == null ? "" : thrown.getMessage();
        String where = Stream.of(thrown.getStackTrace()).map(one -> "\n\tat " + one).collect(Collectors.joining());
        return complain(name.substring(name.lastIndexOf('.') + 1), said, name + ": " + said + where);
    }

    static int refuse(Snippet snippet) throws IOException {
        String why = shell.diagnostics(snippet)
            .map(one -> one.getMessage(Locale.ROOT)).collect(Collectors.joining("\n"));
        return complain("CompilationError", why, snippet.source() + "\n" + why);
    }

    static int complain(String name, String message, String trace) throws IOException {
        answer("ename", name);
        answer("evalue", message);
        answer("trace", trace);
        return 1;
    }

    static void answer(String word, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        control.write((word + " " + bytes.length + "\n").getBytes(StandardCharsets.UTF_8));
        control.write(bytes);
    }

    static void say(String text) throws IOException {
        control.write(text.getBytes(StandardCharsets.UTF_8));
    }

    static String readLine() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int one; (one = cells.read()) != '\n'; line.append((char) one)) if (one < 0) return null;
        return line.toString();
    }
}
