/*
 * app_wait.c - what the main thread of a running router does.
 *
 * The main thread does nothing but wait for signals and for the process that takes over
 * (takeover/): loops serve, the control thread probes and answers on the admin address, the log
 * thread writes.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/access_log.h"
#include "admin/admin.h"
#include "app.h"
#include "app_parts.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "feeds/feed.h"
#include "proxy/proxy.h"
#include "state/state.h"
#include "takeover/giver.h"
#include "takeover/successor.h"

#define SNAPSHOT_LOOK_MS 5 /* interval at which it is checked whether the snapshot is written */
/* Longest time for closing the engines' sockets and writing what they reported. */
#define FEED_CLOSES_NS (2 * KVW_NS_PER_S)

static void signal_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGUSR2);
	sigaddset(set, SIGCHLD);
}

void kvw_app_block_signals(void)
{
	sigset_t set;

	signal_set(&set);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* If it was ignored at the start, kvway would not learn that a successor has ended. */
	(void)signal(SIGCHLD, SIG_DFL);
}

static bool loops_ended(const struct kvw_app *app)
{
	for (size_t i = 0; i < app->loop_count; i++)
		if (atomic_load(&app->loop_turn_ns[i]) != INT64_MAX)
			return false;
	return true;
}

/* Feeds the service manager's watchdog while all loops turn, so that it restarts a process whose
 * loops stand still. */
static void feed_watchdog(const struct kvw_app *app, int64_t period_ns, int64_t *fed_ns)
{
	int64_t now_ns = kvw_clock_ns();

	if (period_ns == 0 || now_ns - *fed_ns < period_ns / 3)
		return;
	for (size_t i = 0; i < app->loop_count; i++)
		if (now_ns - atomic_load(&app->loop_turn_ns[i]) > KVW_LOOP_STUCK_NS)
			return;
	kvw_notify("WATCHDOG=1");
	*fed_ns = now_ns;
}

/* Events for which the main thread waits, and how far the shutdown has come. */
struct watch {
	struct kvw_app *app;
	int signals; /* signalfd */
	int64_t watchdog_ns, fed_ns;
	bool draining;
	bool handed; /* another process accepts */
	bool warned; /* the address was handed over, and one signal to end has come */
	bool writes; /* a snapshot for the process that takes over is being written */
};

/* Returns the next signal; 0: there is none yet. Also returns when a process that takes over has
 * sent a message. */
static int next_signal(const struct watch *watch)
{
	struct pollfd polls[1 + KVW_GIVER_POLLS] = {{.fd = watch->signals, .events = POLLIN}};
	int wait_ms = watch->draining ? 20 : -1;
	struct signalfd_siginfo got;
	size_t count = 1;

	if (!watch->draining && watch->watchdog_ns > 0)
		wait_ms = (int)(watch->watchdog_ns / 4 / KVW_NS_PER_MS) + 1;
	if (watch->writes)
		wait_ms = SNAPSHOT_LOOK_MS;
	if (!watch->handed)
		count += kvw_giver_poll(watch->app->giver, polls + 1, &wait_ms);
	(void)poll(polls, count, wait_ms);
	return read(watch->signals, &got, sizeof(got)) == (ssize_t)sizeof(got) ? (int)got.ssi_signo
									       : 0;
}

/* Begins a snapshot when one is asked for, and sends it when it is written. */
static void give_snapshot(struct watch *watch)
{
	struct kvw_app *app = watch->app;
	int fd;

	if (!watch->writes && kvw_giver_owes_snapshot(app->giver)) {
		watch->writes = true;
		kvw_state_prepare(app->state);
		kvw_admin_wake(app->admin);
	}
	if (watch->writes && kvw_state_prepared(app->state, &fd)) {
		watch->writes = false;
		kvw_giver_give_snapshot_take(app->giver, fd);
	}
}

/* Handles that another process is ready: only now this one stops accepting. The service manager is
 * not informed of an end, since the address is still served. */
static void hand_over_to_heir(struct watch *watch)
{
	struct kvw_app *app = watch->app;
	char main_pid[32];
	int caches = -1;

	watch->draining = watch->handed = true;
	(void)snprintf(
		main_pid, sizeof(main_pid), "MAINPID=%lld", (long long)kvw_giver_heir(app->giver));
	kvw_notify(main_pid);
	kvw_info("takeover", "it is ready: accepting no more, finishing what runs");
	if (app->state != NULL)
		/* From here on the new process writes the snapshots, since it learns more. */
		kvw_state_rest(app->state, true);
	if (app->feed != NULL)
		caches = kvw_feed_hand_over(
			app->feed, FEED_CLOSES_NS, kvw_giver_heir_reads_caches(app->giver));
	kvw_proxy_drain(app->proxy, KVW_DRAIN_HANDED);
	kvw_admin_hand_over(app->admin);
	if (caches >= 0)
		kvw_giver_give_caches_take(app->giver, caches);
	kvw_giver_say_goodbye(app->giver);
}

static void drain_loops(struct watch *watch, int signal)
{
	struct kvw_app *app = watch->app;

	if (watch->handed && !watch->warned) {
		/* One such signal is ignored, since a service manager sends it to all processes of
		 * a service when it stops one: the streams may still finish. */
		kvw_info("app",
			"handed over, finishing what runs; a second signal leaves at once "
			"signal=%s",
			strsignal(signal));
		watch->warned = true;
		return;
	}
	if (watch->draining) {
		kvw_warn("app", "second signal: leaving at once");
		_exit(1);
	}
	kvw_info("app", "draining signal=%s", strsignal(signal));
	watch->draining = true;
	kvw_notify("STOPPING=1");
	kvw_giver_close(app->giver, "it is shutting down");
	kvw_admin_set_draining(app->admin);
	kvw_proxy_drain(app->proxy, KVW_DRAIN_SETTLES);
}

static void start_successor(struct watch *watch)
{
	struct kvw_app *app = watch->app;
	int channel;

	if (watch->draining || app->child > 0 || getpid() == 1) {
		kvw_warn("takeover", "SIGUSR2 does nothing: %s",
			getpid() == 1 ? "when the first process of a container ends, all of it does"
			: app->child > 0 ? "the new kvway that it started before is still there"
					 : "this process is about to end");
		return;
	}
	if (kvw_successor_start(app->successor, &app->child, &channel) == KVW_OK)
		kvw_giver_serve_take(app->giver, channel, app->child);
}

static void child_ended(struct kvw_app *app)
{
	int status;

	if (app->child > 0 && waitpid(app->child, &status, WNOHANG) == app->child) {
		kvw_info("takeover", "the new kvway has ended pid=%lld status=%d signal=%d",
			(long long)app->child, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
			WIFSIGNALED(status) ? WTERMSIG(status) : 0);
		app->child = 0;
	}
}

static bool is_over(const struct watch *watch)
{
	struct kvw_app *app = watch->app;

	return watch->draining && loops_ended(app) &&
	       (!watch->handed || kvw_admin_handed_over(app->admin));
}

/* Waits for signals; a second signal to end leaves at once. */
void kvw_app_wait(struct kvw_app *app)
{
	struct watch watch = {.app = app, .watchdog_ns = kvw_notify_watchdog_ns()};
	sigset_t set;

	signal_set(&set);
	watch.signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	while (!is_over(&watch)) {
		int got = next_signal(&watch);

		if (!watch.handed)
			feed_watchdog(app, watch.watchdog_ns, &watch.fed_ns);
		if (!watch.handed && kvw_giver_turn(app->giver))
			hand_over_to_heir(&watch);
		if (!watch.handed)
			give_snapshot(&watch);
		if (got == SIGHUP) {
			kvw_access_log_reopen(app->access_log);
			if (!watch.handed)
				kvw_admin_reload(app->admin);
		} else if (got == SIGUSR2) {
			start_successor(&watch);
		} else if (got == SIGCHLD) {
			child_ended(app);
		} else if (got > 0) {
			drain_loops(&watch, got);
		}
	}
	close(watch.signals);
	if (watch.handed)
		kvw_info("takeover", "finished what ran");
}
