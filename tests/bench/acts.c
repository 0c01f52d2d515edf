/* One kind of act in a loop: prints what each took at best, in seconds, behind "figure".
 *
 * usage: acts open COUNT FILE | spawn COUNT PROGRAM | connect COUNT PORT | wait COUNT FILE
 * `wait` opens, says "ready" and waits for a line, so that somebody can look at the supervisor.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int do_open(const char *path) {
    int fd = open(path, O_RDONLY);
    return fd < 0 ? -1 : close(fd);
}

static int do_spawn(const char *path) {
    int status = -1;
    pid_t pid = vfork();
    if (pid == 0) {
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    return pid < 0 || waitpid(pid, &status, 0) < 0 || status ? -1 : 0;
}

static int do_connect(const char *port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(port)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int failed = connect(fd, (struct sockaddr *)&there, sizeof there);
    return close(fd) || failed ? -1 : 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: acts open|spawn|connect|wait COUNT OBJECT\n");
        return 2;
    }
    int (*act)(const char *) = argv[1][0] == 's' ? do_spawn : argv[1][0] == 'c' ? do_connect : do_open;
    int waits = argv[1][0] == 'w', count = atoi(argv[2]);
    double best = 1e9;
    for (int round = 0; round < (waits ? 1 : 5); round++) {
        double start = now();
        for (int i = 0; i < count; i++)
            if (act(argv[3]) < 0) {
                perror(argv[1]);
                return 1;
            }
        double each = (now() - start) / count;
        if (each < best)
            best = each;
    }
    if (waits) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    printf("figure %.9f\n", best);
    return 0;
}
