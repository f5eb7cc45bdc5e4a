/* Reading a process's output into its rings, and the frames that speak of it. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "loop.h"

void output_read(struct stream *s, uint64_t room);
/* After the end: only what is readable now still counts. A background child may hold the pipe for ever. */
void output_last_words(struct stream *s);
/* Throws away what is there; false when the other side has closed. */
bool output_discard(struct stream *s);

void output_describe(struct buf *about, const struct request *r);
void output_started(const struct proc *p, struct buf *b);
void output_dropped(struct buf *b, int stream, uint64_t count);
void output_process(const struct proc *p, struct buf *b);

#endif
