/* What the tests in C share. */
#ifndef TEST_H
#define TEST_H

#include <holdfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_TX ((holdfast_tx){0})

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);         \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define WANT(code, call)                                                       \
    do {                                                                       \
        holdfast_code found_ = (call);                                         \
        if (found_ != (code)) {                                                \
            fprintf(stderr, "%s:%d: %s is %d, not %s; last message: %s\n",     \
                    __FILE__, __LINE__, #call, (int)found_, #code,             \
                    holdfast_message());                                       \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define OK(call) WANT(HOLDFAST_OK, call)

/* A new pool that is small and may be damaged on purpose. */
static inline holdfast_pool small_pool(const char *path)
{
    holdfast_options options;
    holdfast_pool pool;
    OK(holdfast_options_init(&options, sizeof options));
    options.size = 16 << 20;
    options.verify = HOLDFAST_VERIFY_ALWAYS;
    OK(holdfast_pool_create(path, &options, &pool));
    return pool;
}

#endif
