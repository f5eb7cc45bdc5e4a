/* A mutation driver for compilers without libFuzzer: fuzz-X SECONDS SEED CORPUS…. Deterministic for a seed and a number
 * of runs. What kills it is in ./crash-SEED, to be given back as `fuzz-X 0 SEED crash-SEED`. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 1 << 16, MOST = 4096 };

static struct { uint8_t *data; size_t size; } corpus[MOST];
static size_t known;
static uint64_t state;

static uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t n)
{
    return n ? random_number() % n : 0;
}

static void learn(const uint8_t *data, size_t size)
{
    if (known == MOST)
        return;
    corpus[known].data = malloc(size + 1);
    memcpy(corpus[known].data, data, size);
    corpus[known++].size = size;
}

static void learn_file(const char *path)
{
    static uint8_t data[LONGEST];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, data, sizeof data);
    if (n < 0) {
        perror(path);
        exit(2);
    }
    close(fd);
    learn(data, n);
}

static size_t cross(uint8_t *data, size_t size)
{
    size_t other = below(known), from = below(corpus[other].size + 1), len = corpus[other].size - from;
    size_t at = below(size + 1);
    if (at + len > LONGEST)
        len = LONGEST - at;
    memcpy(data + at, corpus[other].data + from, len);
    return at + len > size ? at + len : size;
}

static size_t mutate(uint8_t *data, size_t size)
{
    static const uint32_t odd[] = {0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x40000, 0x40001, 0x7fffffff, 0xffffffff};
    size_t at = below(size);
    switch (below(7)) {
    case 0: if (size) data[at] ^= 1 << below(8); break;
    case 1: if (size) data[at] = random_number(); break;
    case 2: if (size) size = at; break;
    case 3: size = cross(data, size); break;
    case 4: if (size - at >= 4 && size >= 4) memcpy(data + at, &odd[below(sizeof odd / sizeof *odd)], 4); break;
    case 5:
        if (size && size < LONGEST) {
            memmove(data + at + 1, data + at, size - at);
            data[at] = random_number();
            size++;
        }
        break;
    default:
        if (size) {
            memmove(data + at, data + at + 1, size - at - 1);
            size--;
        }
    }
    return size;
}

/* Written before the run: what kills us has no time to write. */
static void remember(int fd, const uint8_t *data, size_t size)
{
    if (pwrite(fd, data, size, 0) != (ssize_t)size || ftruncate(fd, size))
        _exit(2);
}

int main(int argc, char **argv)
{
    static uint8_t data[LONGEST + 8];
    if (argc < 4) {
        fprintf(stderr, "usage: %s SECONDS SEED CORPUS...\n", argv[0]);
        return 2;
    }
    double seconds = atof(argv[1]);
    state = strtoull(argv[2], NULL, 0) | 1;
    for (int i = 3; i < argc; i++)
        learn_file(argv[i]);
    for (size_t i = 0; i < known; i++)
        LLVMFuzzerTestOneInput(corpus[i].data, corpus[i].size);
    char name[64];
    snprintf(name, sizeof name, "crash-%s", argv[2]);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    unsigned long runs = 0;
    do {
        size_t from = below(known), size = corpus[from].size;
        memcpy(data, corpus[from].data, size);
        for (size_t n = 1 + below(8); n; n--)
            size = mutate(data, size);
        remember(fd, data, size);
        LLVMFuzzerTestOneInput(data, size);
        if (++runs % 64 == 0 && known < MOST / 2)
            learn(data, size);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec + (now.tv_nsec - began.tv_nsec) / 1e9 < seconds);
    unlink(name);
    printf("%lu runs with seed %s\n", runs, argv[2]);
    return 0;
}
