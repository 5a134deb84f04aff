/*
 * check_threads.c - a test program that starts a thread stands in tests/threads.txt.
 *
 * ThreadSanitizer's build makes and runs the programs of that list, since where there is one thread there is nothing to
 * see. So that none is forgotten, the builds without a sanitizer have their own pthread_create, which ends a test whose
 * program is not in the list. The definition in the program comes before libc's for shared objects, too. tests/gpu/run.sh
 * sets KVW_DRIVER_THREADS, since a device's driver starts threads, which no build of ours can look into.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static bool listed(void)
{
	FILE *list = fopen(THREADS_TXT, "re");
	char line[256];
	bool found = false;

	while (list != NULL && !found && fgets(line, sizeof(line), list) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strcmp(line, program_invocation_short_name) == 0;
	}
	if (list != NULL)
		fclose(list);
	return found || list == NULL;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context)
{
	create_fn *real;

	if (getenv("KVW_DRIVER_THREADS") == NULL && !listed()) {
		fprintf(stderr, "%s starts a thread: add a line with its name to tests/threads.txt\n",
			program_invocation_short_name);
		abort();
	}
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	return real(thread, attributes, body, context);
}
