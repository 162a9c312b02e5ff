/* A program has itself guarded: sums and parity of the files it maps and writes, kept in the
 * background by a supervisor that is started for it. Programs that are started by `holdfast guard`
 * need none of this.
 *
 * Link with -lholdfast_preload, or preload the library: it has to stand before the C library, so
 * one that is loaded by dlopen is refused. */
#ifndef HOLDFAST_GUARD_H
#define HOLDFAST_GUARD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Has this program guarded from now on, until it ends; its children as well.
 *
 * supervisor  the `holdfast` command; NULL finds it in PATH.
 * options     options of `holdfast guard` without a program, NULL at the end; NULL is none.
 *             {"--match", "*.db", "--period", "500ms", "--summary", "book.txt", NULL}
 *
 * What was written before the call nobody saw. A file that gets its first side file now is covered
 * as it is. In one that has a side file, what differs from it is undecided: kept, and told.
 * Streams (FILE) that were opened before, and writes of other threads during the call, make the
 * file be checked only, if they write to it later.
 *
 * 0, or -1 with errno:
 *   EALREADY      it is guarded already
 *   EAGAIN        another thread is attaching, or the system has no process left
 *   ENOTSUP       the library was loaded too late: link or preload it
 *   ENOENT        there is no such supervisor
 *   ECONNREFUSED  the supervisor does not begin; it says why on standard error
 *   E2BIG         too many options
 * The program is not guarded then, and goes on as before. */
int holdfast_guard_attach(const char *supervisor, const char *const *options);

#ifdef __cplusplus
}
#endif

#endif
