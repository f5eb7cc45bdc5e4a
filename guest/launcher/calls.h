/* The system calls of a sandbox: which exist inside, which are refused, which depend on their arguments. */
#ifndef CALLS_H
#define CALLS_H

#include <stddef.h>
#include <stdint.h>

/* A call that depends on its arguments: see checks.c. */
enum check {
    CHECK_NONE, CHECK_CLONE, CHECK_SOCKET, CHECK_SOCKETPAIR, CHECK_SETSOCKOPT, CHECK_IOCTL, CHECK_FCNTL, CHECK_PRCTL,
    CHECK_PERSONALITY, CHECK_MADVISE, CHECK_SETRLIMIT, CHECK_PRLIMIT, CHECK_SETXATTR,
    CHECK_NESTED_CLONE, CHECK_NESTED_MOUNT,
};

struct call { unsigned number; enum check check; };

extern const struct call allowed_calls[];
extern const size_t allowed_count;
extern const unsigned refused_calls[];
extern const size_t refused_count;
/* Of the allowed ones: those that tell of the host, which the supervisor answers (its told.c). */
extern const unsigned told_calls[];
extern const size_t told_count;
/* What a sandbox that nests may do beyond the others: namespaces of its own, and views of its own files. */
extern const struct call nested_calls[];
extern const size_t nested_count;

/* Beyond every number in the tables. */
enum { CALLS_END = 512 };

/* seccomp.c, for checks.c: a classic BPF program under construction. */
void emit(uint16_t code, uint8_t yes, uint8_t no, uint32_t value);
void load_argument(unsigned index);
void load_argument_high(unsigned index);
void answer(uint32_t verdict);
void answer_if(uint32_t value, uint32_t verdict);
void answer_if_any_bit(uint32_t bits, uint32_t verdict);
void answer_if_above(uint32_t most, uint32_t verdict);
void keep_bits(uint32_t bits);
size_t begin_if(uint32_t value);
void end_if(size_t begun);

/* checks.c: the program's part for one call, ending in an answer on every way. */
void emit_check(enum check check);

#endif
