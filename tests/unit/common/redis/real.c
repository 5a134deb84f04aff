/*
 * real.c - a redis-server of the test's own, in a temporary folder, on free ports and a Unix
 * socket.
 */
#include "real.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/port.h"

#define ARGUMENTS 64
#define PATIENCE  20000 /* waits of a millisecond */

bool real_exists(void)
{
	return system("redis-server --version >/dev/null 2>&1 && openssl version >/dev/null "
		      "2>&1") == 0;
}

void real_init(struct real *s)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->folder, sizeof(s->folder), "/tmp/kvt-redis-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(s->folder));
	snprintf(s->socket, sizeof(s->socket), "%s/socket", s->folder);
	s->port = keep_port(&s->kept[0]);
	s->tls_port = keep_port(&s->kept[1]);
}

static void run(const char *folder, const char *command)
{
	char line[2048];

	snprintf(line, sizeof(line), "cd %s && { %s; } >>openssl.log 2>&1", folder, command);
	if (system(line) != 0)
		ck_abort_msg("cannot: %s", line);
}

static void authority(const char *folder, const char *name)
{
	char command[512];

	snprintf(command, sizeof(command),
		"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
		"-subj '/CN=kvtier test %s' -keyout %s.key -out %s.pem",
		name, name, name);
	run(folder, command);
}

static void signed_by(const char *folder, const char *ca, const char *name, const char *names)
{
	char command[1024];

	snprintf(command, sizeof(command),
		"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=%s' "
		"-keyout %s.key -out %s.csr && echo 'subjectAltName=%s' >%s.ext && openssl x509 "
		"-req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days 2 -extfile %s.ext "
		"-out %s.pem",
		name, name, name, names, name, name, ca, ca, name, name);
	run(folder, command);
}

void real_certificates(struct real *s)
{
	authority(s->folder, "ca");
	authority(s->folder, "other");
	signed_by(s->folder, "ca", "server", "DNS:localhost,IP:127.0.0.2");
	signed_by(s->folder, "ca", "elsewhere", "DNS:elsewhere.example");
	signed_by(s->folder, "ca", "client", "DNS:client");
}

/* Splits at spaces; quotes are not known. */
static int split(char *text, char **out)
{
	int n = 0;

	for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
		ck_assert_int_lt(n, ARGUMENTS - 1);
		out[n++] = word;
	}
	out[n] = NULL;
	return n;
}

static void exec_server(const struct real *s, bool tls)
{
	char line[2048], *arguments[ARGUMENTS];
	int n, log = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	n = snprintf(line, sizeof(line),
		"redis-server --port %u --bind 127.0.0.1 127.0.0.2 --unixsocket %s --save  "
		"--appendonly no --dir %s ",
		s->port, s->socket, s->folder);
	if (tls)
		n += snprintf(line + n, sizeof(line) - (size_t)n,
			"--tls-port %u --tls-cert-file server.pem --tls-key-file server.key "
			"--tls-ca-cert-file ca.pem ",
			s->tls_port);
	snprintf(line + n, sizeof(line) - (size_t)n, "%s", s->arguments);
	n = split(line, arguments);
	for (int i = 0; i + 1 < n; i++)
		if (strcmp(arguments[i], "--save") == 0) { /* its argument is empty */
			memmove(arguments + i + 2, arguments + i + 1,
				(size_t)(n - i) * sizeof(*arguments));
			arguments[i + 1] = (char *)"";
			n++;
			break;
		}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	execvp(arguments[0], arguments);
	_exit(127);
}

static bool listens(const struct real *s)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", s->socket);
	good = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return good;
}

void real_start(struct real *s, bool tls)
{
	unlink(s->socket);
	s->pid = fork();
	ck_assert_int_ge(s->pid, 0);
	if (s->pid == 0) {
		if (chdir(s->folder) == 0)
			exec_server(s, tls);
		_exit(126);
	}
	for (int i = 0; i < PATIENCE && !listens(s); i++) {
		int status;

		if (waitpid(s->pid, &status, WNOHANG) == s->pid)
			ck_abort_msg("redis-server ended; see %s/log", s->folder);
		(void)poll(NULL, 0, 1);
	}
	ck_assert(listens(s));
}

void real_stop(struct real *s)
{
	if (s->pid <= 0)
		return;
	(void)kill(s->pid, SIGKILL);
	(void)waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

void real_finish(struct real *s)
{
	char command[128];

	real_stop(s);
	close(s->kept[0]);
	close(s->kept[1]);
	snprintf(command, sizeof(command), "rm -rf %s", s->folder);
	if (system(command) != 0)
		ck_abort_msg("cannot remove %s", s->folder);
}
