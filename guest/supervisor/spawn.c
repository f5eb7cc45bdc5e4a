/* Starting a process: pipes or a terminal on our side, and everything the child does before exec. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop.h"
#include "own_kernel.h"
#include "users.h"

#define OOM_SCORE "500"                 /* the kernel must not pick PID 1 first */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { OPEN_FILES = 4096, STACK = 8 << 20, DEFAULT_VARIABLES = 7 };

/* The child's ends; -1 where there is none. */
struct ends {
    int in, out, err, status, terminal;
};

static void close_ends(struct ends *e)
{
    int *all = &e->in;
    for (size_t i = 0; i < sizeof *e / sizeof *all; i++)
        if (all[i] >= 0)
            close(all[i]);
}

static bool pipe_pair(int *ours, int *theirs, bool we_write)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return false;
    *ours = fd[we_write];
    *theirs = fd[!we_write];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) == 0;
}

static bool open_pipes(struct proc *p, struct ends *e, const struct request *r)
{
    return pipe_pair(&p->out[0].src.fd, &e->out, false) && pipe_pair(&p->out[1].src.fd, &e->err, false) &&
           (!(r->flags & FLAG_STDIN) || pipe_pair(&p->in.fd, &e->in, true));
}

static bool open_terminal(struct proc *p, struct ends *e, const struct request *r)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), unlock = 0;
    p->out[0].src.fd = master;
    p->out[1].done = true;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock))
        return false;
    p->slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (p->slave < 0 || (e->terminal = fcntl(p->slave, F_DUPFD_CLOEXEC, 3)) < 0)
        return false;
    struct winsize size = {.ws_col = r->cols ? r->cols : 80, .ws_row = r->rows ? r->rows : 24};
    ioctl(master, TIOCSWINSZ, &size);
    p->in.fd = fcntl(master, F_DUPFD_CLOEXEC, 3);
    return p->in.fd >= 0;
}

/* ---- in the child ---- */

static _Noreturn void fail(int status_fd, enum stage stage, int err)
{
    uint32_t failure[2] = {stage, err};
    if (write(status_fd, failure, sizeof failure) < 0)
        _exit(126);
    _exit(125);
}

static void enter_cgroup(int cgroup_fd, int status_fd)
{
    if (cgroup_fd < 0)
        return;
    if (write(cgroup_fd, "0", 1) != 1)
        fail(status_fd, S_CGROUP, errno);
    close(cgroup_fd);
}

static void take_stdio(struct ends *e)
{
    if (e->terminal >= 0) {
        if (ioctl(e->terminal, TIOCSCTTY, 0))
            fail(e->status, S_TERMINAL, errno);
        e->in = e->out = e->err = e->terminal;
    }
    if (e->in < 0 && (e->in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        fail(e->status, S_STDIO, errno);
    /* None of them is 0, 1 or 2: the supervisor holds those open. */
    if (dup2(e->in, 0) < 0 || dup2(e->out, 1) < 0 || dup2(e->err, 2) < 0)
        fail(e->status, S_STDIO, errno);
}

static void lower(int resource, rlim_t soft)
{
    struct rlimit l;
    if (getrlimit(resource, &l) == 0) {
        l.rlim_cur = soft < l.rlim_max ? soft : l.rlim_max;
        setrlimit(resource, &l);
    }
}

static void settle(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, OOM_SCORE, strlen(OOM_SCORE)) < 0)
            errno = 0;                  /* already higher: as good */
        close(fd);
    }
    lower(RLIMIT_NOFILE, OPEN_FILES);
    lower(RLIMIT_CORE, 0);
    lower(RLIMIT_STACK, STACK);
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const struct user *u, const struct ends *e)
{
    if (e->terminal >= 0 && (fchown(0, u->uid, -1) || fchmod(0, 0620)))
        fail(e->status, S_TERMINAL, errno);
    if (setgroups(u->group_count, u->groups) || setresgid(u->gid, u->gid, u->gid))
        fail(e->status, S_USER, errno);
    if (u->uid)
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (setresuid(u->uid, u->uid, u->uid))
        fail(e->status, S_USER, errno);
}

static void add_default(char **env, size_t *n, const char *name, const char *value)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < *n; i++)
        if (!strncmp(env[i], name, len) && env[i][len] == '=')
            return;
    if (asprintf(&env[*n], "%s=%s", name, value) >= 0)
        ++*n;
}

static char **environment(const struct request *r, const struct user *u, bool terminal)
{
    char **env = request_strings(r, T_ENV, r->envs, DEFAULT_VARIABLES);
    size_t n = r->envs;
    if (!env)
        return NULL;
    add_default(env, &n, "PATH", DEFAULT_PATH);
    add_default(env, &n, "HOME", u->home);
    add_default(env, &n, "USER", u->name);
    add_default(env, &n, "LOGNAME", u->name);
    add_default(env, &n, "SHELL", u->shell);
    add_default(env, &n, "TERM", terminal ? "xterm-256color" : "dumb");
    add_default(env, &n, "LANG", "C.UTF-8");
    return env;
}

/* What a child took of a memory that may be its parent's too. */
struct taken {
    char *who, *cwd, **argv, **env;
};

static void free_taken(struct taken *t)
{
    free(t->who);
    free(t->cwd);
    request_strings_free(t->argv);
    request_strings_free(t->env);
}

static _Noreturn void child(struct ends e, const struct request *r, int cgroup_fd, int group_fd, struct taken *t)
{
    struct user u;
    t->who = text_dup(r->user);
    t->cwd = text_dup(r->cwd);
    t->argv = request_strings(r, T_ARG, r->args, 0);
    shown_leave();
    if (!t->who || !t->cwd || !t->argv)
        fail(e.status, S_FORK, ENOMEM);
    enter_cgroup(cgroup_fd, e.status);
    int refused = group_fd < 0 ? 0 : group_enter(group_fd);
    if (refused)
        fail(e.status, S_CGROUP, refused);
    if (setsid() < 0)
        fail(e.status, S_FORK, errno);
    take_stdio(&e);
    settle();
    int err = user_find(*t->who ? t->who : "root", &u);
    if (err)
        fail(e.status, S_USER, err);
    become(&u, &e);
    if (chdir(*t->cwd ? t->cwd : "/"))
        fail(e.status, S_CWD, errno);
    environ = t->env = environment(r, &u, e.terminal >= 0);
    if (!environ)
        fail(e.status, S_FORK, ENOMEM);
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);   /* all of them are already; this is the second lock */
    execvp(t->argv[0], t->argv);
    fail(e.status, S_EXEC, errno);
}

/* A child with a cgroup to enter may have to wait there, and we do not: it is a copy. Any other begins in our memory
 * while we stand still, which behind a kernel that is a process costs a third. */
static pid_t begin(const struct ends *e, const struct request *r, int cgroup_fd, int group_fd)
{
    struct taken taken = {0};
    char **own = environ;
    pid_t pid = cgroup_fd < 0 ? vfork() : fork();
    if (pid == 0)
        child(*e, r, cgroup_fd, group_fd, &taken);
    int err = errno;
    environ = own;
    free_taken(&taken);
    errno = err;
    return pid;
}

int spawn(struct proc *p, const struct request *r, int cgroup_fd, int group_fd, enum stage *stage)
{
    struct ends e = {-1, -1, -1, -1, -1};
    *stage = p->terminal ? S_TERMINAL : S_FORK;
    bool opened = p->terminal ? open_terminal(p, &e, r) : open_pipes(p, &e, r);
    pid_t pid = -1;
    if (opened && pipe_pair(&p->status.fd, &e.status, false)) {
        *stage = S_FORK;
        pid = begin(&e, r, cgroup_fd, group_fd);
    }
    int err = errno;
    close_ends(&e);
    p->pid = pid;
    return pid < 0 ? err : 0;
}
