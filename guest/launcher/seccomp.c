/* The system call filter: an allow-list (calls.c, checks.c), written as classic BPF.
 *
 * Numbers with one answer lie together in long runs, so the program is a binary tree over some hundred runs, with the
 * checks of arguments at its leaves. Every sandbox pays for attaching it. */
#include "launcher.h"

#include "calls.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <string.h>

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arguments are read low word first");

enum { NOT_THERE = SECCOMP_RET_ERRNO | ENOSYS };

/* What one number gets: an answer, or a check of its arguments. */
struct verdict { uint32_t answer; enum check check; };
struct run { unsigned first; struct verdict verdict; };

static struct sock_filter programs[FILTERS][BPF_MAXINSNS], *code;
static size_t length;
static bool failed;

void emit(uint16_t op, uint8_t yes, uint8_t no, uint32_t value) {
    if (length == BPF_MAXINSNS) failed = true;
    else code[length++] = (struct sock_filter){.code = op, .jt = yes, .jf = no, .k = value};
}

static void load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset); }
void load_argument(unsigned index) { load(offsetof(struct seccomp_data, args) + 8 * index); }
void load_argument_high(unsigned index) { load(offsetof(struct seccomp_data, args) + 8 * index + 4); }
void answer(uint32_t verdict) { emit(BPF_RET | BPF_K, 0, 0, verdict); }

void answer_if(uint32_t value, uint32_t verdict) {
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
    answer(verdict);
}

void answer_if_any_bit(uint32_t bits, uint32_t verdict) {
    emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, bits);
    answer(verdict);
}

void answer_if_above(uint32_t most, uint32_t verdict) {
    emit(BPF_JMP | BPF_JGT | BPF_K, 0, 1, most);
    answer(verdict);
}

/* Of what is loaded. */
void keep_bits(uint32_t bits) { emit(BPF_ALU | BPF_AND | BPF_K, 0, 0, bits); }

/* What is emitted until end_if happens only for this value. */
size_t begin_if(uint32_t value) {
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, value);
    return length - 1;
}

void end_if(size_t begun) {
    size_t skipped = length - begun - 1;
    if (skipped > UINT8_MAX) failed = true;
    code[begun].jf = (uint8_t)skipped;
}

static void allow(struct verdict *verdicts, const struct call *calls, size_t count) {
    for (size_t i = 0; i < count; i++)
        verdicts[calls[i].number] = (struct verdict){SECCOMP_RET_ALLOW, calls[i].check};
}

static void judge(struct verdict *verdicts, unsigned which) {
    for (size_t i = 0; i < CALLS_END; i++) verdicts[i] = (struct verdict){.answer = NOT_THERE};
    for (size_t i = 0; i < refused_count; i++) verdicts[refused_calls[i]].answer = SECCOMP_RET_ERRNO | EPERM;
    allow(verdicts, allowed_calls, allowed_count);
    if (which & FILTER_NESTS) allow(verdicts, nested_calls, nested_count);
    for (size_t i = 0; i < told_count && !(which & FILTER_ALONE); i++)
        verdicts[told_calls[i]] = (struct verdict){.answer = SECCOMP_RET_USER_NOTIF};
}

static size_t find_runs(const struct verdict *verdicts, struct run *runs) {
    size_t count = 0;
    for (unsigned number = 0; number < CALLS_END; number++)
        if (!number || memcmp(&verdicts[number], &verdicts[number - 1], sizeof *verdicts))
            runs[count++] = (struct run){number, verdicts[number]};
    return count;
}

/* The number is loaded. Checks load something else, and always answer. */
static void emit_tree(const struct run *runs, size_t count) {
    if (count == 1) {
        if (runs->verdict.check) emit_check(runs->verdict.check);
        else answer(runs->verdict.answer);
        return;
    }
    emit(BPF_JMP | BPF_JGE | BPF_K, 0, 1, runs[count / 2].first);
    size_t jump = length;
    emit(BPF_JMP | BPF_JA, 0, 0, 0);
    emit_tree(runs, count / 2);
    code[jump].k = (uint32_t)(length - jump - 1);
    emit_tree(runs + count / 2, count - count / 2);
}

/* The program, kept in memory for every sandbox to come of this kind. */
bool filter_make(struct sock_fprog *program, unsigned which) {
    struct verdict verdicts[CALLS_END];
    struct run runs[CALLS_END];
    code = programs[which];
    length = 0;
    judge(verdicts, which);
    load(offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCHITECTURE);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
    /* A tracer cancels a call by making its number -1. */
    answer_if(UINT32_MAX, NOT_THERE);
    emit(BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    answer(SECCOMP_RET_KILL_PROCESS);
#endif
    emit_tree(runs, find_runs(verdicts, runs));
    if (failed) return false;
    program->len = (unsigned short)length;
    program->filter = code;
    return true;
}
