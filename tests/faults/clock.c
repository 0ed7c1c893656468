/* Preloaded into a process, it adds seconds to the process's wall clock.
 *
 * They are in the file that FAULTS_CLOCK names, as eight bytes, and may change at any time. The
 * monotonic clock is the machine's. Deadlines on the wall clock (of conditions, semaphores and
 * futexes) come from the shifted clock, so the shift is subtracted before the kernel sees them. As
 * on a real machine, a deadline that was computed before a jump of the clock is met too early or too
 * late.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Deadlines on the monotonic clock are smaller: it starts with the machine. */
#define OLDEST_WALL_CLOCK 1000000000

static const volatile int64_t *shift;
static int64_t none;

__attribute__((constructor)) static void map_shift(void) {
  const char *path = getenv("FAULTS_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  shift = page == MAP_FAILED ? &none : page;
  if (fd >= 0) close(fd);
}

static int64_t seconds(void) { return shift ? *shift : 0; }

static int is_wall(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(clock, now);
  if (!code && is_wall(clock)) now->tv_sec += seconds();
  return code;
}

int gettimeofday(struct timeval *now, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int code = real(now, zone);
  if (!code) now->tv_sec += seconds();
  return code;
}

time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

static struct timespec unshifted(const struct timespec *deadline) {
  struct timespec found = *deadline;
  if (found.tv_sec > OLDEST_WALL_CLOCK) {
    found.tv_sec -= seconds();
    if (found.tv_sec < 0) found.tv_sec = 0;
  }
  return found;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *deadline) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  /* Without a version, dlsym gives the oldest one, whose conditions have another form. */
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  struct timespec until = unshifted(deadline);
  return real(condition, mutex, &until);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
  struct timespec until = unshifted(deadline);
  return real(semaphore, &until);
}

/* Only of futexes is the deadline an address; the other calls pass through. */
long syscall(long number, ...) {
  va_list words;
  long word[6];
  va_start(words, number);
  for (int i = 0; i < 6; i++) word[i] = va_arg(words, long);
  va_end(words);
  struct timespec until;
  if (number == SYS_futex && (word[1] & FUTEX_CLOCK_REALTIME) && word[3]) {
    until = unshifted((const struct timespec *)word[3]);
    word[3] = (long)&until;
  }
  register long r10 __asm__("r10") = word[3];
  register long r8 __asm__("r8") = word[4];
  register long r9 __asm__("r9") = word[5];
  long code;
  __asm__ volatile("syscall"
                   : "=a"(code)
                   : "a"(number), "D"(word[0]), "S"(word[1]), "d"(word[2]), "r"(r10), "r"(r8),
                     "r"(r9)
                   : "rcx", "r11", "memory");
  if (code < 0 && code > -4096) {
    errno = (int)-code;
    return -1;
  }
  return code;
}
