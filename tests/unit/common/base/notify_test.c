/* notify_test.c - what the service manager's socket gets. */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/notify.h"
#include "tests/unit/suite.h"

/* A socket under this name, '@' for an abstract one, which $NOTIFY_SOCKET names. */
static int manager(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
		0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static const char *heard(int fd)
{
	static char text[200];
	ssize_t got = recv(fd, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	return text;
}

START_TEST(reaches_a_path_and_an_abstract_name)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), _i == 0 ? "/tmp/kvw-notify-%d" : "@kvw-notify-%d", (int)getpid());
	fd = manager(name);
	kvw_notify("READY=1");
	ck_assert_str_eq(heard(fd), "READY=1");
	kvw_notify_reloading();
	ck_assert_ptr_nonnull(strstr(heard(fd), "RELOADING=1\nMONOTONIC_USEC="));
	close(fd);
	kvw_notify("STOPPING=1"); /* to a manager that has gone: no harm */
	if (_i == 0)
		unlink(name);
}
END_TEST

START_TEST(without_a_manager_nothing_happens)
{
	char name[200];

	memset(name, 'a', sizeof(name) - 1);
	name[0] = '/', name[sizeof(name) - 1] = '\0';
	unsetenv("NOTIFY_SOCKET");
	kvw_notify("READY=1");
	setenv("NOTIFY_SOCKET", name, 1); /* longer than an address may be */
	kvw_notify("READY=1");
	setenv("NOTIFY_SOCKET", "relative", 1);
	kvw_notify("READY=1");
}
END_TEST

START_TEST(watchdog_is_of_this_process_only)
{
	char pid[20];

	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	ck_assert_int_eq(kvw_notify_watchdog_ns(), 0);
	setenv("WATCHDOG_USEC", "3000000", 1);
	ck_assert_int_eq(kvw_notify_watchdog_ns(), INT64_C(3000000000));
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	ck_assert_int_eq(kvw_notify_watchdog_ns(), INT64_C(3000000000));
	setenv("WATCHDOG_PID", "1", 1);
	ck_assert_int_eq(kvw_notify_watchdog_ns(), 0);
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "nonsense", 1);
	ck_assert_int_eq(kvw_notify_watchdog_ns(), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("notify");

	tcase_add_loop_test(tcase, reaches_a_path_and_an_abstract_name, 0, 2);
	tcase_add_test(tcase, without_a_manager_nothing_happens);
	tcase_add_test(tcase, watchdog_is_of_this_process_only);
	return run_tcase("notify", tcase);
}
