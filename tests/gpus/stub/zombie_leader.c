/* Opens the file named by argv[1] (if there is one), then lets its main thread exit while another thread lives on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *live(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    for (int i = 1; i < argc; i++)
        if (open(argv[i], O_RDONLY) < 0) return 1;
    pthread_create(&thread, NULL, live, NULL);
    puts("held");
    fflush(stdout);
    pthread_exit(NULL);
}
