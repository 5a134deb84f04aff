/*
 * successor.c - starts the installed program as a child that takes over.
 *
 * The program's file is found by the path that it had at this process's start: /proc/self/exe would
 * be this very program for ever, even after another one was installed over it. The child gets one
 * end of a socket pair, so that no path has to be configured. It gets none of the variables by
 * which a service manager addresses this process.
 */
#include "takeover/successor.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

extern char **environ;

void kvw_successor_init(struct kvw_successor *successor, char *const *argv)
{
	ssize_t len =
		readlink("/proc/self/exe", successor->program, sizeof(successor->program) - 1);

	successor->program[len > 0 ? len : 0] = '\0';
	successor->argv = argv;
}

/* Copies the arguments without `--takeover X` and `--takeover=X`, and adds ours. The caller frees
 * the array; the texts are borrowed. */
static char **arguments(char *const *argv, char *flag, char *value)
{
	size_t count = 0, used = 0;
	char **out;

	while (argv[count] != NULL)
		count++;
	out = calloc(count + 3, sizeof(out[0]));
	for (size_t i = 0; out != NULL && i < count; i++) {
		if (i > 0 && strncmp(argv[i], "--takeover=", 11) == 0)
			continue;
		if (i > 0 && strcmp(argv[i], flag) == 0)
			i++;
		else
			out[used++] = argv[i];
	}
	if (out != NULL) {
		out[used++] = flag;
		out[used] = value;
	}
	return out;
}

static bool is_about_us(const char *variable)
{
	return strncmp(variable, "WATCHDOG_PID=", 13) == 0 || strncmp(variable, "LISTEN_", 7) == 0;
}

/* Makes the child's environment. The caller frees the array; the texts are borrowed. */
static char **environment(void)
{
	size_t count = 0, used = 0;
	char **out;

	while (environ[count] != NULL)
		count++;
	out = calloc(count + 1, sizeof(out[0]));
	for (size_t i = 0; out != NULL && i < count; i++)
		if (!is_about_us(environ[i]))
			out[used++] = environ[i];
	return out;
}

static int spawn(const char *program, char **argv, char **env, int fd, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int failed;

	sigemptyset(&none);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return ENOMEM;
	}
	/* Duplicated onto itself, so that it stays open in the child. */
	failed = posix_spawn_file_actions_adddup2(&actions, fd, fd);
	if (failed == 0)
		failed = posix_spawnattr_setsigmask(&attributes, &none);
	if (failed == 0)
		failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (failed == 0)
		failed = posix_spawn(pid, program, &actions, &attributes, argv, env);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return failed;
}

enum kvw_err kvw_successor_start(const struct kvw_successor *successor, pid_t *pid, int *channel)
{
	char flag[] = "--takeover", value[16], **argv, **env;
	int pair[2], failed = ENOMEM;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
		kvw_error("takeover", "cannot start the new kvway error=%s", strerror(errno));
		return KVW_EIO;
	}
	(void)snprintf(value, sizeof(value), "fd:%d", pair[1]);
	argv = arguments(successor->argv, flag, value);
	env = environment();
	if (argv != NULL && env != NULL)
		failed = spawn(successor->program, argv, env, pair[1], pid);
	free(argv);
	free(env);
	close(pair[1]);
	if (failed != 0) {
		kvw_error("takeover", "cannot start the new kvway program=%s error=%s",
			successor->program, strerror(failed));
		close(pair[0]);
		return failed == ENOMEM ? KVW_ENOMEM : KVW_EIO;
	}
	kvw_info("takeover", "started the new kvway program=%s pid=%lld", successor->program,
		(long long)*pid);
	*channel = pair[0];
	return KVW_OK;
}
