/* The answer to one order: made, with pid and timings, or failed, with step and errno.
 *
 * The forked worker answers by itself with one datagram on the socket it shares with the resident process. */
#include "launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct { const char *name; double ms; } steps[STEPS_MAX];
static size_t step_count;
static double began_ms;
static int answer_fd = -1;
static const char *answer_tag = "";
static pid_t doomed;

static double ms_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double now_ms(void) { return ms_of(CLOCK_MONOTONIC); }

void answer_begin(int fd, const char *tag) {
    answer_fd = fd;
    answer_tag = tag;
    began_ms = now_ms();
}

void answer_on_failure_kill(pid_t child) { doomed = child; }

const char *step_current(void) { return step_count ? steps[step_count - 1].name : "begin"; }

/* Ends the running step and begins `name`. */
void step(const char *name) {
    double now = now_ms();
    if (step_count) steps[step_count - 1].ms = now - steps[step_count - 1].ms;
    if (step_count == STEPS_MAX) abort();
    steps[step_count].name = name;
    steps[step_count++].ms = now;
}

static size_t field(char *out, size_t used, size_t room, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(out + used, room - used, format, list);
    va_end(list);
    return n < 0 || (size_t)n >= room - used ? room : used + (size_t)n + 1;
}

static unsigned long long start_time(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = strrchr(text, ')');
    for (int skip = 0; at && skip < 20; skip++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

void answer_made(pid_t pid) {
    char out[2048];
    unsigned long long started = start_time(pid);
    step("answer");
    size_t used = field(out, 0, sizeof out, "tag=%s", answer_tag);
    used = field(out, used, sizeof out, "made=1");
    used = field(out, used, sizeof out, "pid=%d", pid);
    used = field(out, used, sizeof out, "start=%llu", started);
    for (size_t i = 0; i + 1 < step_count; i++)
        used = field(out, used, sizeof out, "t.%s=%.3f", steps[i].name, steps[i].ms);
    used = field(out, used, sizeof out, "t.total=%.3f", now_ms() - began_ms);
    /* The worker's own; its child's is the sandbox's. */
    used = field(out, used, sizeof out, "t.processor=%.3f", ms_of(CLOCK_PROCESS_CPUTIME_ID));
    send(answer_fd, out, used, MSG_NOSIGNAL);
}

_Noreturn void answer_failed(const char *name, int err, const char *text) {
    char out[8192];
    if (doomed > 0) kill(doomed, SIGKILL);
    size_t used = field(out, 0, sizeof out, "tag=%s", answer_tag);
    used = field(out, used, sizeof out, "failed=%s", name);
    used = field(out, used, sizeof out, "errno=%d", err);
    used = field(out, used, sizeof out, "text=%.4096s", text ? text : strerror(err));
    send(answer_fd, out, used, MSG_NOSIGNAL);
    _exit(1);
}
