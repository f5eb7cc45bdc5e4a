# Cells of R in the global environment; visible values and plots are shown, as R's own prompt does.
# Runs inside a sandbox, in the interpreter that keeps the state.
local({
  codes <- file(paste0("/dev/fd/", Sys.getenv("SANDBOXER_CODE")), "rb", raw = TRUE)
  control <- file(paste0("/dev/fd/", Sys.getenv("SANDBOXER_CONTROL")), "wb", raw = TRUE)
  Sys.unsetenv(c("SANDBOXER_CODE", "SANDBOXER_CONTROL", "SANDBOXER_FLAG"))
  say <- function(bytes) { writeBin(bytes, control); flush(control) }
  answer <- function(word, text) {
    bytes <- charToRaw(paste(text, collapse = "\n"))
    say(c(charToRaw(sprintf("%s %d\n", word, length(bytes))), bytes))
  }
  read_line <- function() {
    line <- raw(0)
    repeat {
      byte <- readBin(codes, "raw", 1)
      if (length(byte) == 0) quit("no")
      if (byte == as.raw(10)) return(rawToChar(line))
      line <- c(line, byte)
    }
  }
  read_code <- function(size) {
    code <- raw(0)
    while (length(code) < size) code <- c(code, readBin(codes, "raw", size - length(code)))
    text <- rawToChar(code)
    Encoding(text) <- "UTF-8"
    text
  }
  complain <- function(name, message, trace) {
    answer("ename", name)
    answer("evalue", message)
    answer("trace", trace)
    1L
  }
  # The one before it was not the last: it was shown on the way.
  show_value <- function(value) {
    text <- utils::capture.output(print(value))
    if (length(text) == 0) return()
    answer("flush", "")
    answer("value", text)
  }
  plots <- file.path(tempdir(), "plot%03d.png")
  device <- NULL
  open_plot <- function(...) {
    if (capabilities("cairo")) grDevices::png(plots, type = "cairo", width = 720, height = 540)
    else grDevices::pdf(NULL)
    device <<- grDevices::dev.cur()
  }
  # What is drawn is complete when its device is closed; devices that a cell opened by itself stay.
  show_plots <- function() {
    if (is.null(device)) return()
    if (device %in% grDevices::dev.list()) grDevices::dev.off(device)
    device <<- NULL
    for (plot in sort(Sys.glob(sub("%03d", "*", plots, fixed = TRUE)))) {
      answer("image/png", system2("base64", c("-w0", shQuote(plot)), stdout = TRUE))
      answer("flush", "")
      unlink(plot)
    }
  }
  run <- function(code) {
    tryCatch({
      for (part in parse(text = code, keep.source = FALSE)) {
        shown <- withVisible(eval(part, globalenv()))
        if (shown$visible) show_value(shown$value)
      }
      answer("flush", "main")
      show_plots()
      0L
    },
    interrupt = function(c) complain("interrupt", "interrupted", "interrupted"),
    error = function(e) {
      where <- paste(deparse(conditionCall(e)), collapse = " ")
      complain(class(e)[1], conditionMessage(e), sprintf("Error in %s : %s", where, conditionMessage(e)))
    })
  }
  if (requireNamespace("grDevices", quietly = TRUE)) options(device = open_plot)
  options(warn = 1)
  say(charToRaw("end 0 0\n"))
  repeat {
    head <- as.integer(strsplit(read_line(), " ")[[1]])
    # An interrupt that comes a moment late finds nobody at work.
    status <- tryCatch(run(read_code(head[2])), interrupt = function(c) 1L)
    flush(stdout())
    tryCatch(say(charToRaw(sprintf("end %d %d\n", status, head[1]))), interrupt = function(c) NULL)
  }
})
