/* `sudo` inside a sandbox, where setuid programs do nothing (no-new-privileges): a client that anybody runs, and a small
 * server that is root already, descends from PID 1 as everything does, and starts what the client names.
 *
 * The client sends a head with four descriptors (stdin, stdout, stderr, its folder), then `size` bytes of texts that end
 * in NUL: the user, the arguments, the environment. The server answers with notes; the client sends signals, each a
 * number of 32 bits, and by hanging up says that everything it started shall end. */
#ifndef SUDO_H
#define SUDO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUDO_SOCKET "/run/sandboxer-sudo.socket"
#define SUDO_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* Whose group may ask. */
#define SUDO_MEMBER "user"

enum { SUDO_MAGIC = 0x31647573, SUDO_BYTES = 1 << 20, SUDO_TEXTS = 32768, SUDO_FDS = 4 };
enum { HEAD_TERMINAL = 1 };             /* stdin is a terminal for the command to control */

struct head {
    uint32_t magic, flags, mask, args, envs, size;
};

enum note_kind { NOTE_EXITED = 1, NOTE_KILLED, NOTE_STOPPED, NOTE_FAILED };
struct note {
    uint32_t kind, number;              /* exit code, signal, or errno */
};

/* What to run, and as whom. */
struct order {
    const char *user;
    char **argv, **env;
    mode_t mask;
    bool terminal;
    int fd[SUDO_FDS];                   /* -1: our own */
};

/* run.c: becomes the command in this very process. Returns errno. */
int run_order(const struct order *order);

/* client.c */
int ask_server(struct order *order);

/* server.c */
int serve(int folders, char **folder);

#endif
