/* A disk that can lose power, under a program that does not know.
 *
 * Loaded before the C library (LD_PRELOAD), it writes every change of the files in one folder to a journal, in order, and every sync that
 * has ended. The files themselves are what the system's memory holds: a process that is killed and started again sees all of it. What a
 * power cut leaves is worked out from the journal by `testkit::power`, while no process runs.
 *
 *   POWER_DIR      the folder, an absolute path; files ending in -shm are left out, since nothing in them need last
 *   POWER_JOURNAL  where the journal goes, outside that folder
 *   POWER_HOLD     while a file of this name exists, a sync of a file does not end; it says so by making NAME.held
 *   POWER_FAIL     while a file of this name exists, a sync of a file fails; with anything in it, one of a log does not
 *   POWER_SYNC_US  how long a sync takes
 *   POWER_LIE      a sync says that it is done, and nothing was
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 65536
enum { NOT_OURS, A_FILE, THE_FOLDER };

/* The head of a record; `length` bytes follow. Little-endian, as `testkit::power` reads it. */
struct head {
    uint32_t kind; /* C create, W write, T truncate, S sync of a file, D of the folder, U unlink, R rename */
    uint32_t length;
    uint64_t file; /* the inode */
    uint64_t place; /* of the write; the new size; for syncs, where the journal ended when it began */
};

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static const char *folder, *hold, *fail;
static size_t folder_length;
static useconds_t sync_us;
static int journal = -1, lies;
static unsigned char what[FDS], is_log[FDS];
static uint64_t inodes[FDS];

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *);
static int (*real_fsync)(int);

__attribute__((constructor)) static void begin(void) {
    real_open = dlsym(RTLD_NEXT, "open");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    const char *path = getenv("POWER_JOURNAL"), *delay = getenv("POWER_SYNC_US");
    folder = getenv("POWER_DIR");
    hold = getenv("POWER_HOLD");
    fail = getenv("POWER_FAIL");
    lies = getenv("POWER_LIE") != NULL;
    sync_us = delay ? (useconds_t)atoi(delay) : 0;
    if (!folder || !path) {
        return;
    }
    folder_length = strlen(folder);
    journal = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0) {
        perror("the journal of the power rig");
        _exit(70);
    }
}

/* The name within the folder, or NULL. */
static const char *name_of(const char *path) {
    if (journal < 0 || !path || strncmp(path, folder, folder_length) || path[folder_length] != '/') {
        return NULL;
    }
    const char *name = path + folder_length + 1;
    size_t length = strlen(name);
    if (length == 0 || strchr(name, '/') || (length > 4 && !strcmp(name + length - 4, "-shm"))) {
        return NULL;
    }
    return name;
}

/* A journal with a gap would prove nothing: better no program than that. */
static void record(uint32_t kind, uint64_t file, uint64_t place, const void *bytes, size_t length) {
    struct head head = {kind, (uint32_t)length, file, place};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, length}};
    if (writev(journal, parts, 2) != (ssize_t)(sizeof head + length)) {
        abort();
    }
}

static int ours(int fd) { return fd >= 0 && fd < FDS ? what[fd] : NOT_OURS; }

static int opened(const char *path, int flags, mode_t mode) {
    const char *name = name_of(path);
    if (journal < 0 || (!name && strcmp(path, folder))) {
        return real_open(path, flags, mode);
    }
    pthread_mutex_lock(&order);
    struct stat before, now;
    int there = stat(path, &before) == 0;
    int fd = real_open(path, flags, mode);
    int kept = errno;
    if (fd >= 0 && fd < FDS && fstat(fd, &now) == 0) {
        what[fd] = name ? A_FILE : THE_FOLDER;
        is_log[fd] = name && strlen(name) > 4 && !strcmp(name + strlen(name) - 4, "-wal");
        inodes[fd] = now.st_ino;
        if (name && !there) {
            record('C', now.st_ino, 0, name, strlen(name));
        } else if (name && (flags & O_TRUNC)) {
            record('T', now.st_ino, 0, NULL, 0);
        }
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return fd;
}

#define MODE_OF(flags)                                                                                                                   \
    mode_t mode = 0;                                                                                                                     \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                                               \
        va_list more;                                                                                                                    \
        va_start(more, flags);                                                                                                           \
        mode = (mode_t)va_arg(more, int);                                                                                                \
        va_end(more);                                                                                                                    \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(path, flags | O_LARGEFILE, mode);
}

int close(int fd) {
    if (ours(fd)) {
        what[fd] = NOT_OURS;
    }
    return real_close(fd);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (ours(fd) != A_FILE) {
        return real_write(fd, bytes, length);
    }
    pthread_mutex_lock(&order);
    int end = fcntl(fd, F_GETFL) & O_APPEND;
    off_t at = lseek(fd, 0, end ? SEEK_END : SEEK_CUR);
    ssize_t done = real_write(fd, bytes, length);
    int kept = errno;
    if (done > 0) {
        record('W', inodes[fd], (uint64_t)at, bytes, (size_t)done);
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return done;
}

static ssize_t written(int fd, const void *bytes, size_t length, off_t at) {
    if (ours(fd) != A_FILE) {
        return real_pwrite(fd, bytes, length, at);
    }
    pthread_mutex_lock(&order);
    ssize_t done = real_pwrite(fd, bytes, length, at);
    int kept = errno;
    if (done > 0) {
        record('W', inodes[fd], (uint64_t)at, bytes, (size_t)done);
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return written(fd, bytes, length, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) { return written(fd, bytes, length, at); }

static int truncated(int fd, off_t size) {
    if (ours(fd) != A_FILE) {
        return real_ftruncate(fd, size);
    }
    pthread_mutex_lock(&order);
    int failed = real_ftruncate(fd, size);
    int kept = errno;
    if (!failed) {
        record('T', inodes[fd], (uint64_t)size, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return failed;
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated(fd, size); }

int unlink(const char *path) {
    const char *name = name_of(path);
    if (!name) {
        return real_unlink(path);
    }
    pthread_mutex_lock(&order);
    int failed = real_unlink(path);
    int kept = errno;
    if (!failed) {
        record('U', 0, 0, name, strlen(name));
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return failed;
}

int rename(const char *from, const char *to) {
    const char *old = name_of(from), *new = name_of(to);
    if (!old || !new) {
        return real_rename(from, to);
    }
    char both[512];
    int length = snprintf(both, sizeof both, "%s/%s", old, new);
    pthread_mutex_lock(&order);
    int failed = real_rename(from, to);
    int kept = errno;
    if (!failed) {
        record('R', 0, 0, both, (size_t)length);
    }
    pthread_mutex_unlock(&order);
    errno = kept;
    return failed;
}

/* What was written before it began has lasted when it ends; what was written meanwhile need not have. */
static int synced(int fd) {
    int kind = ours(fd);
    if (kind == NOT_OURS) {
        return real_fsync(fd);
    }
    pthread_mutex_lock(&order);
    off_t began = lseek(journal, 0, SEEK_END);
    pthread_mutex_unlock(&order);
    if (kind == A_FILE && hold && access(hold, F_OK) == 0) {
        char held[512];
        snprintf(held, sizeof held, "%s.held", hold);
        real_close(real_open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        while (access(hold, F_OK) == 0) {
            usleep(1000);
        }
    }
    struct stat failing;
    if (kind == A_FILE && fail && stat(fail, &failing) == 0 && !(is_log[fd] && failing.st_size)) {
        errno = EIO;
        return -1;
    }
    if (sync_us) {
        usleep(sync_us);
    }
    if (!lies) {
        pthread_mutex_lock(&order);
        record(kind == A_FILE ? 'S' : 'D', inodes[fd], (uint64_t)began, NULL, 0);
        pthread_mutex_unlock(&order);
    }
    return 0;
}

int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }
