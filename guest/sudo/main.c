/* The words of `sudo`: whom to become, with which environment, to do what. Those that mean nothing here are refused. */
#include "sudo.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../supervisor/users.h"

static const char usage[] =
    "usage: sudo [-EHnS] [-u user] [-D folder] [VAR=value] [-i | -s] [command [argument ...]]\n"
    "       sudo -v | -k | -K | -l | -V | -h\n";

struct wish {
    const char *user, *folder;
    bool login, shell, keeps_home;
    bool is_done;                       /* nothing to run: it asked whether, or to forget a password */
};

static _Noreturn void refuse(const char *what, const char *why)
{
    fprintf(stderr, "sudo: %s %s\n%s", what, why, usage);
    exit(1);
}

static void take_option(struct wish *wish, int option, const char *given)
{
    switch (option) {
    case 'u': wish->user = *optarg == '#' ? optarg + 1 : optarg; break;
    case 'D': wish->folder = optarg; break;
    case 'E': wish->keeps_home = !optarg; break;
    case 'H': wish->keeps_home = false; break;
    case 'i': wish->login = true; break;
    case 's': wish->shell = true; break;
    case 'v': case 'k': case 'K': wish->is_done = true; break;
    case 'n': case 'S': case 'A': case 'p': break;      /* nobody is asked for a password */
    case 'l': puts("    (ALL) NOPASSWD: ALL"); exit(0);
    case 'V': puts("sudo of sandboxer: asks a server in the sandbox, since nothing gains a privilege by being run"); exit(0);
    case 'h': fputs(usage, stdout); exit(0);
    default: refuse(given, "is not understood here");
    }
}

static void take_options(struct wish *wish, int argc, char **argv)
{
    static const struct option words[] = {
        {"user", required_argument, NULL, 'u'}, {"chdir", required_argument, NULL, 'D'},
        {"preserve-env", optional_argument, NULL, 'E'}, {"set-home", no_argument, NULL, 'H'},
        {"login", no_argument, NULL, 'i'}, {"shell", no_argument, NULL, 's'}, {"validate", no_argument, NULL, 'v'},
        {"reset-timestamp", no_argument, NULL, 'k'}, {"remove-timestamp", no_argument, NULL, 'K'},
        {"non-interactive", no_argument, NULL, 'n'}, {"stdin", no_argument, NULL, 'S'},
        {"askpass", no_argument, NULL, 'A'}, {"prompt", required_argument, NULL, 'p'},
        {"list", no_argument, NULL, 'l'}, {"version", no_argument, NULL, 'V'}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+u:D:EHisvkKnSAp:lVh", words, NULL)) != -1;)
        take_option(wish, option, argv[optind - 1]);
}

/* ---- its environment ---- */

struct list {
    char **texts;
    size_t count, room;
};

static void append(struct list *list, char *text)
{
    if (list->count + 1 >= list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->texts = realloc(list->texts, list->room * sizeof *list->texts);
    }
    if (!list->texts || !text)
        refuse("memory", "is used up");
    list->texts[list->count++] = text;
    list->texts[list->count] = NULL;
}

static void put(struct list *env, char *assignment)
{
    size_t name = strcspn(assignment, "=") + 1;
    for (size_t i = 0; i < env->count; i++)
        if (!strncmp(env->texts[i], assignment, name)) {
            env->texts[i] = assignment;
            return;
        }
    append(env, assignment);
}

static void put_pair(struct list *env, const char *name, const char *value)
{
    char *both;
    if (asprintf(&both, "%s=%s", name, value) < 0)
        refuse("memory", "is used up");
    put(env, both);
}

/* Everything is kept but who and where it is: no privilege is guarded here that a variable could take, and without
 * those of the network nothing would reach it. */
static struct list environment_of(const struct wish *wish, const struct user *target, const char *command)
{
    struct list env = {0};
    struct user caller;
    char number[16];
    for (char **one = environ; *one; one++)
        append(&env, *one);
    put_pair(&env, "PATH", SUDO_PATH);
    put_pair(&env, "USER", target->name);
    put_pair(&env, "LOGNAME", target->name);
    if (!wish->keeps_home || wish->login)
        put_pair(&env, "HOME", target->home);
    if (wish->login || wish->shell)
        put_pair(&env, "SHELL", target->shell);
    snprintf(number, sizeof number, "%u", getuid());
    put_pair(&env, "SUDO_UID", number);
    put_pair(&env, "SUDO_USER", user_find(number, &caller) ? number : caller.name);
    snprintf(number, sizeof number, "%u", getgid());
    put_pair(&env, "SUDO_GID", number);
    put_pair(&env, "SUDO_COMMAND", command);
    return env;
}

/* ---- its arguments ---- */

static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("_-$", c);
}

/* The arguments as one line that a shell reads as the same arguments. */
static char *quoted(char **words)
{
    size_t size = 1;
    for (char **word = words; *word; word++)
        size += 2 * strlen(*word) + 1;
    char *line = malloc(size), *at = line;
    if (!line)
        refuse("memory", "is used up");
    for (char **word = words; *word; word++) {
        if (word != words)
            *at++ = ' ';
        for (const char *c = *word; *c; *at++ = *c++)
            if (!is_plain(*c))
                *at++ = '\\';
    }
    *at = 0;
    return line;
}

static char **command_of(const struct wish *wish, struct user *target, char **words)
{
    struct list argv = {0};
    const char *own = getenv("SHELL");
    if (!wish->login && !wish->shell)
        return words;
    append(&argv, wish->login || !own ? target->shell : strdup(own));
    if (wish->login)
        append(&argv, strdup("-l"));
    if (*words) {
        append(&argv, strdup("-c"));
        append(&argv, quoted(words));
    }
    return argv.texts;
}

static int folder_of(const struct wish *wish, const struct user *target)
{
    const char *path = wish->folder ? wish->folder : wish->login ? target->home : ".";
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && wish->folder)
        refuse(path, strerror(errno));
    return fd < 0 ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : fd;
}

/* A place of stdio that is closed could not be handed over. */
static void hold_stdio(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

int main(int argc, char **argv)
{
    struct wish wish = {.user = "root"};
    struct user target;
    hold_stdio();
    if (argc > 1 && !strcmp(argv[1], "--serve"))
        return getuid() ? 1 : serve(argc - 2, argv + 2);
    take_options(&wish, argc, argv);
    if (user_find(wish.user, &target)) {
        fprintf(stderr, "sudo: unknown user %s\n", wish.user);
        return 1;
    }
    char **words = argv + optind, **given = words;
    while (*words && strcspn(*words, "=") && strchr(*words, '=') && !strchr("/.", **words))
        words++;
    if (!*words && wish.is_done)
        return 0;
    if (!*words && !wish.login && !wish.shell)
        refuse("what to run", "is missing");
    char **command = command_of(&wish, &target, words);
    struct list env = environment_of(&wish, &target, command[0]);
    for (; given < words; given++)
        put(&env, *given);
    mode_t mask = umask(0);
    umask(mask);
    struct order order = {.user = wish.user, .argv = command, .env = env.texts, .mask = mask,
                          .fd = {0, 1, 2, folder_of(&wish, &target)}};
    if (getuid() && getuid() != target.uid)
        return ask_server(&order);
    int err = run_order(&order);
    fprintf(stderr, "sudo: %s: %s\n", command[0], err == ENOENT ? "command not found" : strerror(err));
    return 1;
}
