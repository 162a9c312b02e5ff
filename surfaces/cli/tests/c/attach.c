/* A program that has a file open and mapped, and then has itself guarded.
 * attach SUPERVISOR FILE [OPTION]...: waits for a line before its last words. */
#include "holdfast_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 500

/* Stores once to each page from the tenth on, before, while and after the program is attached. */
static void *stores(void *map) {
    for (int page = 10; page < PAGES; page++) {
        ((char *)map)[page * PAGE + 100] ^= 0x5a;
        usleep(20);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    int fd = open(words[2], O_RDWR);
    /* Not for its supervisor to hold. */
    if (open("kept.txt", O_RDWR | O_CREAT, 0600) < 0) return 10;
    char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED) return 3;
    memcpy(map + 1 * PAGE, "stored before", 13);
    if (pwrite(fd, "written before", 14, 2 * PAGE) != 14) return 4;
    pthread_t thread;
    if (pthread_create(&thread, NULL, stores, map) != 0) return 9;
    if (holdfast_guard_attach(words[1], (const char *const *)(words + 3)) != 0) {
        printf("refused: %s\n", strerror(errno));
        return 5;
    }
    if (holdfast_guard_attach(words[1], NULL) == 0 || errno != EALREADY) return 6;
    memcpy(map + 3 * PAGE, "stored after", 12);
    if (pwrite(fd, "written after", 13, 4 * PAGE) != 13) return 7;
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0) {
        memcpy(map + 5 * PAGE, "stored by a child", 17);
        _exit(0);
    }
    /* The supervisor is nobody this program has to wait for. */
    if (waitpid(-1, NULL, 0) != child || waitpid(-1, NULL, 0) != -1) return 8;
    puts("attached");
    fflush(stdout);
    getchar();
    memcpy(map + 6 * PAGE, "last words", 10);
    return 0;
}
