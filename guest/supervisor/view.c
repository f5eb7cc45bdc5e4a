/* The sandbox's own limits and use, in the format of the kernel's files. Every number is read from the files of its
 * cgroups when somebody asks, so it moves with use and with a change of the limits. */
#include "view.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_ROOM = 256 << 10, STAT_ROOM = 8192, PERIOD_US = 100000, TICK_US = 10000, MOST_CPUS = 1024 };
/* As the kernel computes an average: every five seconds, in 1/2048. */
enum { LOAD_STEP_US = 5000000, LOAD_ONE = 2048 };
static const unsigned decay[3] = {1884, 2014, 2037};

static int figures[FIGURES] = {-1, -1, -1, -1, -1}, cpuinfo = -1;
static char texts[SHOWN][TEXT_ROOM];
static size_t lengths[SHOWN];

static int given(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : fd;
}

int view_open(int first_fd)
{
    cpuinfo = given(first_fd + 1);
    for (int i = 0; i < FIGURES; i++)
        figures[i] = given(first_fd + VIEW_FIRST_FIGURE + i);
    return given(first_fd);
}

/* ---- numbers ---- */

static bool read_figure(enum figure which, char *text, size_t room)
{
    ssize_t n = figures[which] < 0 ? -1 : pread(figures[which], text, room - 1, 0);
    if (n <= 0)
        return false;
    text[n] = 0;
    return true;
}

/* The value of a line that begins with this word; 0 without such a line. */
static uint64_t value_of(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, word, len) && line[len] == ' ')
            return strtoull(line + len + 1, NULL, 10);
    }
    return 0;
}

bool view_memory(struct memory *m)
{
    char text[STAT_ROOM];
    if (!read_figure(MEMORY_LIMIT, text, sizeof text) || !isdigit((unsigned char)*text))
        return false;
    *m = (struct memory){.limit = strtoull(text, NULL, 10)};
    if (!read_figure(MEMORY_USED, text, sizeof text))
        return false;
    m->used = strtoull(text, NULL, 10);
    if (m->used > m->limit)
        m->used = m->limit;
    if (!read_figure(MEMORY_STAT, text, sizeof text))
        return true;
    /* The second word is that of cgroup v1. */
    m->anon = value_of(text, "anon") + value_of(text, "rss");
    m->file = value_of(text, "file") + value_of(text, "cache");
    m->mapped = value_of(text, "file_mapped") + value_of(text, "mapped_file");
    m->dirty = value_of(text, "file_dirty") + value_of(text, "dirty");
    m->writeback = value_of(text, "file_writeback") + value_of(text, "writeback");
    m->shmem = value_of(text, "shmem");
    m->active_anon = value_of(text, "active_anon");
    m->inactive_anon = value_of(text, "inactive_anon");
    m->active_file = value_of(text, "active_file");
    m->inactive_file = value_of(text, "inactive_file");
    m->unevictable = value_of(text, "unevictable");
    m->reclaimable = value_of(text, "slab_reclaimable");
    m->unreclaimable = value_of(text, "slab_unreclaimable");
    return true;
}

/* What the kernel would give back before it killed anybody counts as available. */
uint64_t view_available(const struct memory *m)
{
    uint64_t available = m->limit - m->used + m->active_file + m->inactive_file + m->reclaimable;
    return available < m->limit ? available : m->limit;
}

/* As many processors as the share of time takes, whole ones. */
unsigned view_cpus(void)
{
    char text[64], *rest;
    if (!read_figure(CPU_LIMIT, text, sizeof text) || !isdigit((unsigned char)*text))
        return 0;
    uint64_t quota = strtoull(text, &rest, 10), period = strtoull(rest, NULL, 10);
    if (!period)
        period = PERIOD_US;             /* of v1, in a file of its own: the host sets this one */
    uint64_t cpus = (quota + period - 1) / period;
    return cpus < 1 ? 1 : cpus < MOST_CPUS ? cpus : MOST_CPUS;
}

bool view_use(struct use *u)
{
    char text[STAT_ROOM];
    if (!read_figure(CPU_USED, text, sizeof text))
        return false;
    *u = (struct use){value_of(text, "user_usec"), value_of(text, "system_usec")};
    return true;
}

static uint64_t clock_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

uint64_t view_uptime_us(void)
{
    return clock_us(CLOCK_BOOTTIME);
}

static uint64_t power(uint64_t base, uint64_t times)
{
    uint64_t result = LOAD_ONE;
    for (; times; times >>= 1, base = base * base / LOAD_ONE)
        if (times & 1)
            result = result * base / LOAD_ONE;
    return result;
}

/* How many processors were in use: what ran between two looks is taken as having run evenly. Whoever only waits for a
 * processor is not seen. Nobody counts while nobody looks. */
void view_load(unsigned load[3])
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t seen_us, used_us;
    static unsigned kept[3];
    struct use u = {0};
    bool known = view_use(&u);
    pthread_mutex_lock(&lock);
    uint64_t now = view_uptime_us(), used = u.user_us + u.system_us, passed = now > seen_us ? now - seen_us : 0;
    if (known && passed >= LOAD_STEP_US) {
        uint64_t average = (used > used_us ? used - used_us : 0) * LOAD_ONE / passed;
        for (int i = 0; i < 3; i++) {
            uint64_t remains = power(decay[i], passed / LOAD_STEP_US);
            kept[i] = (kept[i] * remains + average * (LOAD_ONE - remains)) / LOAD_ONE;
        }
        seen_us = now;
        used_us = used;
    }
    memcpy(load, kept, sizeof kept);
    pthread_mutex_unlock(&lock);
}

/* ---- texts ---- */

struct page { char *at; size_t len; };

static void add(struct page *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(p->at + p->len, TEXT_ROOM - p->len, format, list);
    va_end(list);
    if (n > 0 && (size_t)n < TEXT_ROOM - p->len)
        p->len += n;                    /* whole, or not at all */
}

static void write_meminfo(struct page *p)
{
    struct memory m;
    if (!view_memory(&m))
        return;
    const struct { const char *name; uint64_t bytes; } lines[] = {
        {"MemTotal", m.limit}, {"MemFree", m.limit - m.used}, {"MemAvailable", view_available(&m)}, {"Buffers", 0},
        {"Cached", m.file}, {"SwapCached", 0}, {"Active", m.active_anon + m.active_file},
        {"Inactive", m.inactive_anon + m.inactive_file}, {"Active(anon)", m.active_anon},
        {"Inactive(anon)", m.inactive_anon}, {"Active(file)", m.active_file}, {"Inactive(file)", m.inactive_file},
        {"Unevictable", m.unevictable}, {"Mlocked", 0}, {"SwapTotal", 0}, {"SwapFree", 0}, {"Dirty", m.dirty},
        {"Writeback", m.writeback}, {"AnonPages", m.anon}, {"Mapped", m.mapped}, {"Shmem", m.shmem},
        {"KReclaimable", m.reclaimable}, {"Slab", m.reclaimable + m.unreclaimable}, {"SReclaimable", m.reclaimable},
        {"SUnreclaim", m.unreclaimable},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        int pad = 15 - (int)strlen(lines[i].name);
        add(p, "%s:%*s%8llu kB\n", lines[i].name, pad > 0 ? pad : 0, "", (unsigned long long)lines[i].bytes / 1024);
    }
}

static uint64_t idle_us(const struct use *u, unsigned cpus)
{
    uint64_t all = view_uptime_us() * cpus, used = u->user_us + u->system_us;
    return all > used ? all - used : 0;
}

static void write_processor(struct page *p, const char *name, const struct use *u, uint64_t idle, unsigned parts)
{
    add(p, "%s %llu 0 %llu %llu 0 0 0 0 0 0\n", name, (unsigned long long)u->user_us / TICK_US / parts,
        (unsigned long long)u->system_us / TICK_US / parts, (unsigned long long)idle / TICK_US / parts);
}

/* What it used is told as if every processor had had its part of it: the kernel does not say which did. */
static void write_stat(struct page *p)
{
    struct use u = {0};
    unsigned cpus = view_cpus();
    view_use(&u);
    uint64_t idle = idle_us(&u, cpus);
    write_processor(p, "cpu ", &u, idle, 1);
    for (unsigned i = 0; i < cpus; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu%u", i);
        write_processor(p, name, &u, idle, cpus);
    }
    uint64_t began = (clock_us(CLOCK_REALTIME) - view_uptime_us()) / 1000000;
    add(p, "intr 0\nctxt 0\nbtime %llu\nprocesses 0\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n",
        (unsigned long long)began);
}

/* The kernel's own words about the first of its processors. Each ends with an empty line. */
static void write_cpuinfo(struct page *p)
{
    unsigned left = view_cpus();
    size_t end = 0;
    ssize_t n;
    while (left && p->len + 1 < TEXT_ROOM && (n = pread(cpuinfo, p->at + p->len, TEXT_ROOM - 1 - p->len, p->len)) > 0) {
        size_t from = p->len ? p->len - 1 : 0;
        p->len += n;
        for (size_t i = from; left && i + 1 < p->len; i++)
            if (p->at[i] == '\n' && p->at[i + 1] == '\n') {
                end = i + 2;
                left--;
            }
    }
    p->len = end;
}

static void write_loadavg(struct page *p)
{
    unsigned load[3];
    view_load(load);
    for (int i = 0; i < 3; i++)
        add(p, "%u.%02u ", load[i] / LOAD_ONE, load[i] % LOAD_ONE * 100 / LOAD_ONE);
    add(p, "1/1 1\n");
}

static void write_uptime(struct page *p)
{
    struct use u = {0};
    view_use(&u);
    uint64_t up = view_uptime_us() / TICK_US, idle = idle_us(&u, view_cpus()) / TICK_US;
    add(p, "%llu.%02llu %llu.%02llu\n", (unsigned long long)up / 100, (unsigned long long)up % 100,
        (unsigned long long)idle / 100, (unsigned long long)idle % 100);
}

/* Who reads a file in pieces gets those of one text, unless somebody else begins meanwhile. */
size_t view_text(enum shown what, uint64_t offset, const char **text)
{
    static void (*const writers[SHOWN])(struct page *) = {
        write_meminfo, write_stat, write_cpuinfo, write_loadavg, write_uptime,
    };
    if (!offset) {
        struct page p = {texts[what], 0};
        writers[what](&p);
        lengths[what] = p.len;
    }
    *text = texts[what] + (offset < lengths[what] ? offset : 0);
    return offset < lengths[what] ? lengths[what] - offset : 0;
}
