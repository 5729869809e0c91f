/* A disk that fails when told to, put before the C library with LD_PRELOAD. The file named by ILB_FAULT says how:
   "fsync": flushing fails with EIO. "torn": the next write of a database stops half way, and so does the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int told(const char *fault) {
    char said[16] = {0};
    const char *name = getenv("ILB_FAULT");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return 0;
    ssize_t size = read(file, said, sizeof said - 1);
    close(file);
    return size > 0 && strncmp(said, fault, strlen(fault)) == 0;
}

static int of_database(int file) {
    char link[64], path[512] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "ilb.db") && !strstr(path, "-shm");
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (told("fsync") && of_database(file)) { errno = EIO; return -1; }
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    if (told("fsync") && of_database(file)) { errno = EIO; return -1; }
    return real(file);
}

static ssize_t write_or_tear(ssize_t (*real)(int, const void *, size_t, off64_t), int file, const void *from,
                             size_t size, off64_t place) {
    if (told("torn") && of_database(file)) {
        real(file, from, size / 2, place);
        kill(getpid(), SIGKILL);
    }
    return real(file, from, size, place);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t place) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    return write_or_tear(real, file, from, size, place);
}

ssize_t pwrite(int file, const void *from, size_t size, off_t place) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    return write_or_tear(real, file, from, size, place);
}
