/* The one epoll loop: what it waits for, and the things it owns (connections, processes). Nothing here blocks. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring.h"
#include "wire.h"

enum { MAX_CONNS = 256, MAX_RUNNING = 512, MAX_ENDED = 64, MAX_GHOSTS = 128, MAX_WORKERS = 192,
       MAX_RELAYED = 4, MAX_CALLS = 32 };
/* What ended processes may keep of their output, all together. */
enum { MAX_ENDED_BYTES = 4 << 20 };
enum { SECRET_SIZE = 32 };

enum source_kind { SRC_LISTEN, SRC_SIGNAL, SRC_CONN, SRC_OUTPUT, SRC_STDIN, SRC_STATUS, SRC_RELAY,
                   SRC_ASK, SRC_NAMES, SRC_SHOWN };

/* Something epoll reports on. `armed` is what it is registered for; 0 means not at all, so that a hung-up
 * pipe that nobody may read yet does not spin the loop. */
struct source {
    enum source_kind kind;
    int fd;
    uint32_t armed;
    void *owner;
};

bool loop_open(void);
void loop_watch(struct source *s, uint32_t events);
void loop_close(struct source *s);      /* unregisters and closes its fd */
void loop_free_later(void *memory);     /* freed when no event of this round can point to it any more */
void loop_turn(int timeout_ms);          /* what is ready, once; -1: waits for it */
void loop_run(void);
uint64_t now_ms(void);

struct proc;

struct conn {
    struct source src;
    struct conn *next;                  /* of all */
    struct buf in, out;
    struct buf told;                    /* TAKEN frames that wait until no piece of output is half sent */
    bool greeted, dead;
    bool known;                         /* it began with the secret, where one is demanded */
    uint32_t version;                   /* of the protocol, as agreed on */
    int passed_fd;                      /* came with SCM_RIGHTS, waits for its request; or -1 */
    uint32_t stdin_done;                /* bytes of the STDIN frame at the front of `in` that were written */
    bool stdin_blocked;
    bool input_only;                    /* gets no output, and has the process's input to itself in its turn */
    uint64_t ticket;                    /* input_only: the smallest one attached is the one whose turn it is */
    bool placed;                        /* its bytes have a place in the process's input: `place` is the next */
    uint64_t place;
    struct proc *proc;                  /* attached to */
    struct conn *next_attached;
    struct relayed *relayed;            /* the port whose calls it is told of */
    uint64_t cursor[2];                 /* next byte of each output stream to send */
    int chunk_stream;
    uint32_t chunk_left;                /* bytes of the frame being sent that are still in the ring */
};

void conn_demand(const uint8_t *secret); /* SECRET_SIZE bytes with which every connection must begin */
void conn_accept(struct source *listener);
void conn_event(struct conn *c, uint32_t events);
void conn_parse(struct conn *c);        /* handle the whole frames that have arrived */
void conn_flush(struct conn *c);        /* send what can be sent now */
void conn_error(struct conn *c, int err, enum stage stage);
void conn_close(struct conn *c);
int conn_count(void);

/* request.c: one whole frame. True: it was consumed; false: it must stay at the front (stdin is full). */
bool request_handle(struct conn *c, uint8_t type, const uint8_t *payload, uint32_t len);

struct stream {
    struct source src;
    struct proc *proc;
    struct ring ring;
    uint64_t drain_left;                /* once ended: what was readable at that moment */
    bool grown;                         /* its pipe was made larger */
    bool done;                          /* nothing more goes into the ring */
};

enum proc_state { PROC_STARTING, PROC_RUNNING, PROC_ENDED, PROC_COMPLETE };

struct proc {
    struct proc *next;
    char id[MAX_ID + 1];
    pid_t pid;
    enum proc_state state;
    int wait_status;
    struct stream out[2];
    struct source in, status;
    int slave;                          /* our copy of the terminal's inner end while it runs, or -1 */
    bool terminal, forget;
    struct conn *attached;
    uint64_t taken, tickets;            /* bytes its input took so far; tickets given out */
    struct conn *amid;                  /* part of this one's STDIN frame is in the pipe, the rest is not */
    bool stirred;                       /* somebody who waits to write may go on: see stdin_round */
    struct buf about;                   /* its ARG and TAG TLVs, as LIST repeats them */
    uint64_t started_at_ns, hangup_at_ms;
    uint64_t group, refused_before;     /* groups.c: 0: it has none */
    bool refused;                       /* it met the limit of processes */
};

/* spawn.c: fills in pid and fds. 0 or errno with *stage. `group_fd`: see groups.c. */
int spawn(struct proc *p, const struct request *r, int cgroup_fd, int group_fd, enum stage *stage);

/* proc.c */
void proc_run(struct conn *c, const struct request *r);
void proc_attach(struct conn *c, const struct request *r);
void proc_detach(struct conn *c);
void proc_list(struct conn *c);
struct proc *proc_find(struct text id);
bool proc_forget(struct proc *p);
void proc_status_ready(struct proc *p);
void proc_output_ready(struct stream *s);
bool proc_reaped(pid_t pid, int wait_status);
void proc_pace(struct proc *p);         /* read its output as fast as the slowest attached reader allows */
void proc_exit_sent(struct proc *p);
void proc_exit_frame(const struct proc *p, struct buf *b);
int proc_timeout_ms(void);              /* until the next terminal must be given up on; -1: none */
void proc_hangups(void);

/* stdin.c: true when the frame is settled; false: it must stay at the front. Progress is in c->stdin_done. */
bool stdin_write(struct conn *c, const uint8_t *data, uint32_t len);
bool stdin_close(struct conn *c);
void stdin_ready(struct proc *p);
void stdin_detached(struct conn *c, struct proc *p);
void stdin_stir(struct proc *p);        /* those who wait to write look again before the loop sleeps */
bool stdin_stirred(void);               /* true once after a stdin_stir */
void proc_stirred(void);

/* listen.c: inside ports whose calls the host is told of; each 0 or errno */
void relay_inherit(int fd, uint16_t port);  /* its listener, to which all connections are led that leave */
int relay_listen(struct conn *c, const struct request *r);
int relay_unlisten(const struct request *r);
void relay_call(struct source *s);      /* somebody inside connects */
void relay_left(struct conn *c);        /* nobody is told any more: the port stays, its callers wait */
int relay_take(uint64_t call);          /* the descriptor of a call, now the caller's; or -1 */

/* inside.c: the folder that tells a sandbox where it is; 0 or errno */
void inside_open(int fd);
int inside_write(const struct request *r);
bool inside_is_socket(struct text name);
int inside_listen(int backlog);         /* the socket in it, or -1 with errno */
void inside_unlisten(void);

/* ask.c: somebody inside makes a call that the filter hands to us */
void ask_ready(struct source *s);

/* shown.c: files of the sandbox's own limits (view.h), asked for by this device; -1: there are none */
void shown_open(int fd);
void shown_asked(void);
void shown_leave(void);                 /* in a child */

/* worker.c: hands the connection, and `call_fd` unless it is -1, to a forked worker. 0 or errno. */
int worker_start(struct conn *c, uint8_t type, const struct request *r, uint32_t frame_len, int call_fd);
void worker_reaped(pid_t pid);
void keep_only(int fd, int other);      /* in a child: closes what is neither, nor stdio */

#endif
