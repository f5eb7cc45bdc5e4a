/* The launcher's own pieces, seen by each other. See main.c for what it is. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#define _GNU_SOURCE

#include <errno.h>
#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ORDER_BYTES 65536
#define LIST_MAX 64
#define STEPS_MAX 24
#define VOLUMES_MAX 16
#define FOLDERS_MAX 4
enum { ORDER_FIGURES = 5 };
#define VIEWS_MAX 8

/* What the supervisor inherits beside stdio; everything else is closed. From FD_STEERED on those of a sandbox with a way
 * out: its sockets, in the order of `enum steered`, and what keeps the kernel leading connections to them. FD_INSIDE is
 * the folder that all others see read-only (inside.c). From FD_DEVICE on what it shows of the sandbox's limits (shown.c):
 * each may be missing. */
enum {
    FD_LISTEN = 3, FD_QUESTIONS = 4, FD_FIRST_CLOSED = 4, FD_STEERED = 5, FD_STEERING = 8, FD_INSIDE = 9,
    FD_DEVICE = 10, FD_CPUINFO = 11, FD_FIGURES = 12,
};
enum steered { TO_PROXY, TO_NAMES, TO_NAMES_STREAM, STEERED };

/* One thing to do on the host, in the order given. */
enum act_kind {
    ACT_FOLDER, ACT_WRITE, ACT_CREATE, ACT_COPY, ACT_APPEND, ACT_SUBVOLUME, ACT_LIMIT, ACT_SNAPSHOT, ACT_RENEW,
    ACT_RENEW_PRIVATE, ACT_FORGET,
};
struct act {
    enum act_kind kind;
    const char *path;
    const char *value; /* what to write; bytes of a limit; what to copy or to snapshot */
};
struct acts {
    struct act list[LIST_MAX];
    size_t count;
};

/* A disk of its own that a sandbox sees at a path: read-write by one sandbox, or read-only by many. */
struct volume {
    const char *disk; /* holds upper/ and work/ */
    const char *path; /* inside, without the first slash */
    bool read_only;
};

/* A folder of the sandbox's own disk that is a mount of its own. */
struct folder {
    const char *path; /* inside, without the first slash */
    bool read_only;
};

/* One order, pointing into the datagram it came in. Python decides every word of it. */
struct order {
    const char *tag;
    const char *image;
    const char *tools;    /* the layer below the image, with what we bring; or NULL */
    const char *disk;     /* holds upper/ and work/ */
    const char *socket;   /* absolute host path of the listening socket */
    const char *cgroup;   /* v2 folder to be born in */
    const char *hostname;
    const char *boot_id;
    uint32_t base, count; /* the sandbox's uid range */
    uint64_t capabilities;
    bool nests;           /* programs in it may make namespaces of their own */
    unsigned way_out;     /* the inside port of the proxy that every connection is led to; 0: none */
    unsigned long shm_bytes;
    unsigned ptys;
    unsigned long sigpending;
    unsigned long open_files;
    struct acts cgroups;  /* before the sandbox's first process exists */
    struct acts disks;    /* while it makes its namespaces */
    const char *joins[LIST_MAX]; /* v1 `tasks` files */
    size_t join_count;
    const char *masks[LIST_MAX]; /* entries of /proc to cover */
    size_t mask_count;
    struct volume volumes[VOLUMES_MAX];
    size_t volume_count;
    struct folder folders[FOLDERS_MAX];
    size_t folder_count;
    const char *figures[ORDER_FIGURES]; /* files that say limit and use, as the supervisor has them (view.h); or NULL */
    const char *views[VIEWS_MAX]; /* entries of /proc that are made of them */
    size_t view_count;
};

/* Of a sandbox, and of one that nests; and the same where nobody can be asked. */
enum { FILTER_NESTS = 1, FILTER_ALONE = 2, FILTERS = 4 };

/* What the resident process prepared once and every order uses. */
struct stage {
    int orders;      /* the server's end of life is an EOF here */
    int mounts;      /* the clean mount namespace */
    bool time;       /* whether this kernel has time namespaces */
    bool steers;     /* whether it can lead connections to a way out */
    int shows;       /* the device by which /proc can show other limits than the host's; or -1 */
    struct sock_fprog filters[FILTERS];
};

/* What the first process keeps by intention, by the numbers it has in the worker. */
struct kept {
    int sync, listen;
    int steered[STEERED], steering, inside;
    int joins[LIST_MAX], figures[ORDER_FIGURES];
    int device, cpuinfo; /* or -1 */
    int answering[2];    /* child and first process: whose the device is now, and the device */
};

/* What the worker gives to it last; the second only where there is a way out. */
enum given { GIVEN_INSIDE, GIVEN_STEERING, GIVEN };

/* What leads the connections of one sandbox, before it is attached. */
struct steering { int map, program; };

/* From the child or the first process to the worker. */
enum word { WORD_USERNS = 1, WORD_NETWORK, WORD_PID, WORD_FAILED };
struct message {
    enum word word;
    int number; /* pid, or errno */
    char step[32];
};

/* order.c */
bool order_parse(struct order *order, char *data, size_t size, const char **why);

/* answer.c: every step is named, timed, and on failure answered with its errno. */
void step(const char *name);
void answer_begin(int fd, const char *tag);
void answer_made(pid_t pid);
_Noreturn void answer_failed(const char *step, int err, const char *text);
void answer_on_failure_kill(pid_t child);
const char *step_current(void);
/* CHECK ends this order with the current step's name when `call` failed. */
#define CHECK(call) do { if ((call) < 0) answer_failed(step_current(), errno, NULL); } while (0)

/* acts.c */
void acts_perform(const struct acts *acts);
void write_file(const char *path, const char *value);
int listen_at(const char *path);

/* stage.c: the clean mount namespace, and where things are in it */
#define STAGE_IMAGE "/stage/image"
#define STAGE_DISK "/stage/disk"
#define STAGE_TOOLS "/stage/tools"
#define STAGE_INSIDE "/stage/inside"
#define STAGE_VIEW "/stage/view"
#define STAGE_ROOT "/stage/root"
#define STAGE_VOLUME "/stage/volume"
#define STAGE_NOTHING "/stage/nothing"
#define STAGE_PROGRAMS "/stage/programs"
#define SUPERVISOR "supervisor"
int stage_make(const char *supervisor);

/* seccomp.c */
bool filter_make(struct sock_fprog *program, unsigned which);

/* devices.c: /dev, and in it what covers entries of /proc */
#define COVER_FILE "/dev/.sandboxer/file"
#define COVER_FOLDER "/dev/.sandboxer/folder"
#define COVER_BOOT_ID "/dev/.sandboxer/boot_id"
void devices_mount(const struct order *order);

/* mounts.c */
int tree_clone(const char *path);
void tree_place(int tree, int userns, bool read_only, const char *where);
void overlay_mount(const struct order *order);
bool place_if_there(int tree, const char *name);
void place_at(int tree, const char *name);
int new_mount(const char *type, unsigned attributes, const char *const (*options)[2]);
int open_folder(const char *path);
int open_place(int root, const char *path);
void folder_mount(int root, const struct folder *folder);
int volume_overlay(const char *disk, const char *nothing, bool read_only);
void volume_place(int root, int mounted, const char *path);

/* inside.c: the folder that tells a sandbox where it is; returns what its supervisor writes it by */
int inside_mount(const struct order *order);

/* shown.c: entries of /proc that show the sandbox's own limits, which the supervisor makes of `figures` */
int shown_device(void);
bool shown_try(void);
void shown_begin(const struct order *order, const struct stage *stage, struct kept *kept);
void shown_answer(const struct order *order, struct kept *kept);
void shown_mount(const struct order *order, struct kept *kept, int *views);
void shown_place(const struct order *order, const struct kept *kept, const int *views);
void shown_keep(struct kept *kept, int (*aside)(int, const struct kept *));
void shown_hand_over(const struct kept *kept);

/* volumes.c */
void volumes_clone(const struct order *order, int *trees);
void volumes_mount(const struct order *order, const int *trees, int userns);
void folders_mount(const struct order *order);

/* worker.c */
_Noreturn void order_perform(const struct order *order, const struct stage *stage);

/* child.c */
_Noreturn void child_main(const struct order *order, const struct stage *stage, struct kept *kept);
_Noreturn void complain(int sync, const char *step_name);
/* Between child and worker: a message with descriptors. Receiving fills in -1 for those that did not come. */
bool line_send(int sync, const void *data, size_t size, const int *fds, size_t count);
ssize_t line_receive(int sync, void *data, size_t size, int *fds, size_t count);

/* network.c */
void network_make(const struct order *order, struct kept *kept);
bool steering_load(struct steering *steering);
int steering_attach(const struct steering *steering, const int *sockets, int network);
bool steering_try(void);

/* walls.c */
_Noreturn void first_process(const struct order *order, const struct stage *stage, struct kept *kept);

#endif
