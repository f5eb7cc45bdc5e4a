/* What a worker can use: blocking, bounded frames over its one connection. A worker ends by _exit only. */
#ifndef WORKER_H
#define WORKER_H

#include <netinet/in.h>
#include <sys/stat.h>

#include "users.h"
#include "wire.h"

enum { CHUNK = MAX_PAYLOAD };
/* Of listings: how deep, how long a path may get by that, and about how much goes into one frame. */
enum { MAX_LIST_DEPTH = 100, LONGEST_PATH = 4096 + MAX_LIST_DEPTH * 256, ENTRIES_BATCH = 32 * 1024 };

struct line {
    int fd;
    int call_fd;                        /* of ACCEPT: the connection made inside */
    struct buf in;                      /* came before the worker was forked */
};

_Noreturn void work_fail(struct line *l, int err, enum stage stage);
_Noreturn void work_done(struct line *l);   /* OK, then the end */
void work_send(struct line *l, struct buf *b);      /* sends and empties b */
void work_send_data(struct line *l, const void *data, uint32_t len);
/* The next frame's header; false when the host has gone. Garbage ends the worker. */
bool work_header(struct line *l, uint8_t *type, uint32_t *len);
bool work_receive(struct line *l, void *data, uint32_t len);     /* false: the host has gone */
char *work_path(struct line *l, struct text t);     /* absolute, terminated; or fails */
void put_file(struct buf *b, const char *path, const struct stat *st, const char *link);

/* One ENTRY of a listing; `name` is looked up in `dir`, which becomes the worker's own folder. */
void put_entry(struct buf *b, int dir, const char *name, const char *path, const struct stat *st, struct text attributes);

_Noreturn void file_stat(struct line *l, const struct request *r);
_Noreturn void file_list(struct line *l, const struct request *r);
_Noreturn void file_page(struct line *l, const char *path, int fd, const struct request *r);
_Noreturn void file_read(struct line *l, const struct request *r);
_Noreturn void file_write(struct line *l, const struct request *r);
_Noreturn void file_mkdir(struct line *l, const struct request *r);
_Noreturn void file_move(struct line *l, const struct request *r);
_Noreturn void file_remove(struct line *l, const struct request *r);
_Noreturn void file_watch(struct line *l, const struct request *r);
_Noreturn void port_connect(struct line *l, const struct request *r);
_Noreturn void port_accept(struct line *l);
/* outward.c: returns when the stream leads to `to`, or to an answer that the caller can read; else ends the worker. */
void ask_for(struct line *l, const struct sockaddr_in *to);

/* Whose what it makes shall be; NULL: root's, or of who had it. Fails for somebody the sandbox does not know. */
const struct user *work_owner(struct line *l, const struct request *r);

/* tree.c; each 0 or errno */
int make_parents(const char *path, const struct user *owner);
int remove_tree(const char *path);
int copy_tree(const char *from, const char *to);
/* Our temporary names begin so; watches keep silent about them. */
#define TEMPORARY_PREFIX ".sandboxer-tmp-"
/* A fresh temporary path beside `path`, allocated. */
char *temporary_beside(const char *path);

#endif
