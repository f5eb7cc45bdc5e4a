/* What programs inside see of the sandbox's own limits and use, in place of the host's: texts in the format of the
 * kernel's files (view.c), given out as files (fuse.c), and as answers to two system calls (ask.c). */
#ifndef VIEW_H
#define VIEW_H

#include <linux/fuse.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Given by the launcher in this order, some of them perhaps closed: the device, the kernel's own list of processors, and
 * the files of the cgroups that say limit and use. */
enum figure { MEMORY_LIMIT, MEMORY_USED, MEMORY_STAT, CPU_LIMIT, CPU_USED, FIGURES };
enum { VIEW_FIRST_FIGURE = 2 };

/* What is shown; a file's node is VIEW_FIRST_NODE and its place. */
enum shown { SHOWN_MEMINFO, SHOWN_STAT, SHOWN_CPUINFO, SHOWN_LOADAVG, SHOWN_UPTIME, SHOWN };
extern const char *const view_names[SHOWN];

struct memory {
    uint64_t limit, used;
    uint64_t anon, file, shmem, mapped, dirty, writeback, active_anon, inactive_anon, active_file, inactive_file,
        unevictable, reclaimable, unreclaimable;
};
struct use { uint64_t user_us, system_us; };

/* view.c: false, or 0, when this host cannot tell. All but view_text may be asked by several threads. The first returns
 * the device, or -1; before anything is opened, which could take the number of what is missing. */
int view_open(int first_fd);
bool view_memory(struct memory *m);
uint64_t view_available(const struct memory *m);
unsigned view_cpus(void);
bool view_use(struct use *u);
uint64_t view_uptime_us(void);
void view_load(unsigned load[3]);       /* in 1/2048 of a processor, over 1, 5 and 15 minutes */
size_t view_text(enum shown what, uint64_t offset, const char **text);  /* from there on; made anew at offset 0 */

/* fuse.c: the answer to one question of the kernel. Nothing of it is trusted but that `len` bytes are there. */
struct fuse_reply {
    struct fuse_out_header head;
    union {
        struct fuse_init_out init;
        struct fuse_entry_out entry;
        struct fuse_attr_out attr;
        struct fuse_open_out open;
        struct fuse_statfs_out statfs;
    } body;
    struct iovec parts[2];
    int count;                          /* of parts; 0: nothing is answered */
};
enum { FUSE_QUESTION_ROOM = FUSE_MIN_READ_BUFFER };
void fuse_answer(const uint8_t *question, size_t len, struct fuse_reply *reply);

#endif
