/* The launcher's own pieces, seen by each other. See main.c for what it is. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#define _GNU_SOURCE

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ORDER_BYTES 65536
#define LIST_MAX 160
#define STEPS_MAX 24

/* What bwrap and, after it, the supervisor inherit; everything above is closed. */
enum { FD_LISTEN = 3, FD_SECCOMP = 4, FD_INFO = 5, FD_FIRST_CLOSED = 6 };

/* One thing to do in a cgroup hierarchy, in the order given: make a folder, or write a value. */
struct act {
    const char *path;
    const char *value; /* NULL: make the folder */
};

/* One order, pointing into the datagram it came in. Python decides every word of it. */
struct order {
    const char *tag;
    const char *image;
    const char *disk;     /* holds upper/ and work/ */
    const char *socket;   /* absolute host path of the listening socket */
    const char *cgroup;   /* v2 folder to be born in */
    uint32_t base, count; /* the sandbox's uid range */
    unsigned ptys;
    unsigned long sigpending;
    unsigned long open_files;
    struct act acts[LIST_MAX];
    size_t act_count;
    const char *joins[LIST_MAX]; /* v1 `tasks` files */
    size_t join_count;
    char *argv[LIST_MAX + 1]; /* bwrap's */
    size_t argc;
};

/* What the resident process prepared once and every order uses. */
struct stage {
    int orders;      /* the server's end of life is an EOF here */
    int mounts;      /* the clean mount namespace */
    int filter;      /* sealed memfd holding the seccomp program */
    int null;        /* /dev/null */
    const char *bwrap;
};

/* order.c */
bool order_parse(struct order *order, char *data, size_t size, const char **why);

/* answer.c: every step is named, timed, and on failure answered with its errno. */
void step(const char *name);
void answer_begin(int fd, const char *tag);
void answer_made(pid_t pid, pid_t monitor);
_Noreturn void answer_failed(const char *step, int err, const char *text);
void answer_on_failure_kill(pid_t child);
const char *step_current(void);
/* CHECK ends this order with the current step's name when `call` failed. */
#define CHECK(call) do { if ((call) < 0) answer_failed(step_current(), errno, NULL); } while (0)

/* stage.c */
int stage_make(const char *supervisor);

/* seccomp.c */
int filter_make(void);

/* mounts.c */
int tree_clone(const char *path);
void tree_place(int tree, int userns, bool read_only, const char *where);
void overlay_mount(uint32_t base);
void terminals_mount(uint32_t base, unsigned ptys);

/* spawn.c */
_Noreturn void order_perform(const struct order *order, const struct stage *stage);

#endif
