/* Volumes: disks that outlive sandboxes, each laid over its path inside; and folders of the sandbox's own disk that
 * are mounts of their own.
 *
 * Never bound there as they are: on a folder of the pool itself its file system takes orders from whoever may write
 * there (subvolumes, snapshots, none of them counted against the volume's limit). An overlay with nothing below
 * passes on reads and writes and no such order. */
#include "launcher.h"

#include <sys/fsuid.h>
#include <sys/mount.h>
#include <unistd.h>

/* While the host's own paths are still there. */
void volumes_clone(const struct order *order, int *trees) {
    for (size_t i = 0; i < order->volume_count; i++) trees[i] = tree_clone(order->volumes[i].disk);
}

void volumes_mount(const struct order *order, const int *trees, int userns) {
    int root = open_folder(STAGE_ROOT);
    for (size_t i = 0; i < order->volume_count; i++) {
        const struct volume *volume = &order->volumes[i];
        /* One over the other: what an overlay was made of is its own from then on. */
        tree_place(trees[i], userns, volume->read_only, STAGE_VOLUME);
        setfsuid(order->base);
        setfsgid(order->base);
        volume_place(root, volume_overlay(STAGE_VOLUME, STAGE_NOTHING, volume->read_only), volume->path);
        setfsuid(0);
        setfsgid(0);
        CHECK(umount2(STAGE_VOLUME, MNT_DETACH));
    }
    close(root);
}

void folders_mount(const struct order *order) {
    int root = open_folder(STAGE_ROOT);
    setfsuid(order->base);
    setfsgid(order->base);
    for (size_t i = 0; i < order->folder_count; i++) folder_mount(root, &order->folders[i]);
    setfsuid(0);
    setfsgid(0);
    close(root);
}
