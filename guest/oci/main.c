/* Makes ready what an OCI runtime finds when it starts a sandbox, and becomes that runtime.
 *
 * usage: stager FD BUNDLE PROGRAM ARGUMENT…
 * FD is a socket with one order in it, the launcher's (launcher/order.c); a failure is answered there as the launcher
 * answers. It closes itself when PROGRAM begins: from then on that one's exit says what became of it. BUNDLE is a
 * folder of the sandbox's own; the tree of the sandbox is mounted at its `root`.
 *
 * Everything happens in a mount namespace and in the sandbox's cgroups, which the runtime inherits: nothing is mounted
 * on the host, and whoever kills the cgroup ends the runtime too, however far it is. The network namespace has
 * `lo` only, and is up: a runtime that brings a network of its own takes that from it. */
#include "../launcher/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROOT "root"
#define NOTHING "nothing"
#define TMP "tmp"
#define UNIFIED_CONTROLLERS "/sys/fs/cgroup/unified/cgroup.controllers"
/* As in the launcher's network.c. */
#define OWN_ADDRESS 0xc6120001u
/* Where a runtime that can hand descriptors on looks for the first of them. */
enum { FD_HANDED = 3 };

static void join(const struct order *order) {
    char path[4096];
    step("cgroup");
    acts_perform(&order->cgroups);
    for (size_t i = 0; i < order->join_count; i++) write_file(order->joins[i], "0");
    if (snprintf(path, sizeof path, "%s/cgroup.procs", order->cgroup) >= (int)sizeof path)
        answer_failed(step_current(), ENAMETOOLONG, NULL);
    write_file(path, "0");
}

/* A way out begins with an address whose net is every address: a kernel of another's takes all of them for `lo`'s then. What
 * it does with connections to them its supervisor has it do (own_kernel.c). A host's kernel, which has no say, has no such
 * address without a way out. */
static void give_all_addresses(int fd) {
    struct ifreq address = {.ifr_name = "lo:1"};
    struct sockaddr_in *in = (struct sockaddr_in *)&address.ifr_addr;
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(OWN_ADDRESS)};
    CHECK(ioctl(fd, SIOCSIFADDR, &address));
    in->sin_addr.s_addr = 0;
    CHECK(ioctl(fd, SIOCSIFNETMASK, &address));
}

static void private_namespaces(const struct order *order) {
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    step("namespaces");
    CHECK(unshare(CLONE_NEWNS | CLONE_NEWNET));
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &lo));
    if (order->way_out) give_all_addresses(fd);
    close(fd);
}

/* By descriptors: no path is too long for the options, and no comma in one is taken for their end. */
static void mount_overlay(int image, int tools, int disk, const char *where) {
    char options[512], below[64] = "";
    struct statvfs seen;
    if (tools >= 0) snprintf(below, sizeof below, ":/proc/self/fd/%d", tools);
    snprintf(options, sizeof options,
             "lowerdir=/proc/self/fd/%d%s,upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%d/work,redirect_dir=on",
             image, below, disk, disk);
    CHECK(mount("overlay", where, "overlay", MS_NOSUID | MS_NODEV, options));
    CHECK(statvfs(where, &seen));
    if (seen.f_flag & ST_RDONLY) answer_failed(step_current(), EROFS, "the overlay came up read-only");
}

/* crun refuses hosts with hierarchies of both versions where the second has a controller, which it would not use: we are in
 * all cgroups already. Here it sees none there; where that file is not there is nothing to hide. */
static void hide_controllers(const char *program) {
    const char *name = strrchr(program, '/');
    if (name && !strcmp(name, "/crun")) (void)mount("/dev/null", UNIFIED_CONTROLLERS, NULL, MS_BIND, NULL);
}

static void place_tree(const struct order *order) {
    step("overlay");
    if (mkdir(ROOT, 0700) && errno != EEXIST) CHECK(-1);
    mount_overlay(open_folder(order->image), order->tools ? open_folder(order->tools) : -1, open_folder(order->disk),
                  ROOT);
}

/* Shows a folder of the sandbox's tree at a name in the bundle too: a kernel of another's that mounts it from there by
 * itself knows that it is a mount, which nobody inside can move away or remove. */
static void show(int where, const char *name) {
    if (mkdir(name, 0700) && errno != EEXIST) CHECK(-1);
    int tree = open_tree(where, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    CHECK(tree);
    CHECK(move_mount(tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH));
    close(tree);
}

static void show_at(int root, const char *path, const char *kind, size_t number) {
    char name[32];
    snprintf(name, sizeof name, "%s-%zu", kind, number);
    int where = open_place(root, path);
    show(where, name);
    close(where);
}

/* The sandbox's own /tmp, by itself: gVisor lays memory over one that is empty unless it is told what to mount there.
 * Where a tenant put something else in its place an empty folder is shown. */
static void place_tmp(void) {
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    step("tmp");
    if (mkdir(TMP, 01777) && errno != EEXIST) CHECK(-1);
    CHECK(chmod(TMP, 01777));
    int root = open_folder(ROOT);
    int tmp = (int)syscall(SYS_openat2, root, "tmp", &how, sizeof how);
    if (tmp >= 0) {
        show(tmp, TMP);
        close(tmp);
    }
    close(root);
}

/* As the launcher does: see its volumes.c. */
static void place_volumes(const struct order *order) {
    char disk[64];
    int root = open_folder(ROOT);
    step("folders");
    for (size_t i = 0; i < order->folder_count; i++) {
        folder_mount(root, &order->folders[i]);
        show_at(root, order->folders[i].path, "folder", i);
    }
    step("volumes");
    if (mkdir(NOTHING, 0755) && errno != EEXIST) CHECK(-1);
    for (size_t i = 0; i < order->volume_count; i++) {
        const struct volume *volume = &order->volumes[i];
        int fd = open_folder(volume->disk);
        snprintf(disk, sizeof disk, "/proc/self/fd/%d", fd);
        volume_place(root, volume_overlay(disk, NOTHING, volume->read_only), volume->path);
        show_at(root, volume->path, "volume", i);
        close(fd);
    }
    close(root);
}

/* The socket that the supervisor listens on, for a runtime that hands it on. One that cannot closes it. */
static void hand_socket(const struct order *order) {
    step("socket");
    int bundle = open_folder(".");
    int listening = listen_at(order->socket);
    CHECK(fchdir(bundle));
    close(bundle);
    if (listening == FD_HANDED) CHECK(fcntl(listening, F_SETFD, 0));
    else CHECK(dup2(listening, FD_HANDED));
}

int main(int argc, char **argv) {
    static char data[ORDER_BYTES];
    static struct order order;
    const char *why = "too long";
    if (argc < 4) {
        fprintf(stderr, "usage: stager FD BUNDLE PROGRAM ARGUMENT...\n");
        return 2;
    }
    /* What it makes must be passable for every user inside, whatever umask the server runs with. */
    umask(022);
    int fd = fcntl(atoi(argv[1]), F_DUPFD_CLOEXEC, 64);
    ssize_t size = fd < 0 ? -1 : recv(fd, data, sizeof data, MSG_TRUNC);
    if (size < 0) {
        perror("stager: no order");
        return 2;
    }
    close(atoi(argv[1]));
    answer_begin(fd, "");
    if ((size_t)size > sizeof data || !order_parse(&order, data, (size_t)size, &why)) answer_failed("order", EINVAL, why);
    answer_begin(fd, order.tag);
    join(&order);
    step("disk");
    acts_perform(&order.disks);
    private_namespaces(&order);
    hide_controllers(argv[3]);
    CHECK(chdir(argv[2]));
    place_tree(&order);
    place_tmp();
    place_volumes(&order);
    hand_socket(&order);
    step("runtime");
    execv(argv[3], argv + 3);
    answer_failed(step_current(), errno, argv[3]);
}
