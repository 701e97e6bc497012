// SPDX-License-Identifier: MIT
// What a hostile or greedy program would try, for the tests of the engines. Built for AArch64.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// allocate MIB: take and touch private memory; 3 if it is refused.
static int allocate(size_t mib) {
    char *memory = malloc(mib << 20);
    if (memory == NULL) {
        return 3;
    }
    memset(memory, 1, mib << 20);
    return memory[(mib << 20) - 1] == 1 ? 0 : 4;
}

// fork COUNT: start that many children that only wait; 3 if one is refused.
static int fork_many(int count) {
    for (int i = 0; i < count; ++i) {
        pid_t child = fork();
        if (child < 0) {
            printf("%d\n", i);
            return 3;
        }
        if (child == 0) {
            pause();
            _exit(0);
        }
    }
    return 0;
}

// echo SOCKET ARENA: read an offset from the socket, add one to the byte there in shared memory, answer it.
static int echo(const char *socket_path, const char *arena_path) {
    int arena = open(arena_path, O_RDWR);
    unsigned char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena, 0);
    int peer = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, socket_path, sizeof address.sun_path - 1);
    if (bytes == MAP_FAILED || connect(peer, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("echo");
        return 5;
    }
    unsigned char offset;
    while (read(peer, &offset, 1) == 1) {
        bytes[offset] += 1;
        if (write(peer, &bytes[offset], 1) != 1) {
            return 6;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "allocate") == 0) {
        return allocate(strtoul(argv[2], NULL, 10));
    }
    if (argc == 3 && strcmp(argv[1], "fork") == 0) {
        return fork_many(atoi(argv[2]));
    }
    if (argc == 4 && strcmp(argv[1], "echo") == 0) {
        return echo(argv[2], argv[3]);
    }
    return 2;
}
