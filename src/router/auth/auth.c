/*
 * auth.c - watches the file of keys, and reads it again when it has changed.
 *
 * The file has its own thread because reading 100,000 keys takes a second, which would delay the
 * control thread and its probes.
 *
 * The folder is watched, as for discovery.file: a file that is replaced by a rename is another
 * inode, and Kubernetes replaces a folder behind a link (`..data`). Where the kernel reports
 * nothing, polling the file every few seconds detects changes. Each state of the file is read once,
 * so that a mistake is logged once; an unreadable file is tried again each time.
 *
 * The first half of a file may be valid YAML whose last entry lacks its restrictions. So the file
 * is read when its state was the same twice, SETTLE_MS apart, and the result is used if the state
 * is still the same afterwards.
 */
#include "auth/auth.h"

#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "auth/jwt_gate.h"
#include "auth/keys_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define ROOM        "auth"
#define INTERVAL_MS 2000
#define SETTLE_MS   50
#define LINES_MOST  20 /* most log lines about the mistakes in one file */
#define WATCHED                                                                                    \
	(IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |   \
		IN_MOVE_SELF | IN_ONLYDIR)

struct kvw_auth {
	char *path, *folder; /* owned */
	pthread_mutex_t lock; /* guards ring and version, and the setting of tenants */
	struct kvw_keyring *ring;
	struct kvw_tenants *tenants; /* owned; NULL: tenants are not isolated from each other */
	/* a warning was logged that the tenants' secret does not outlast the process */
	atomic_bool warned;
	_Atomic uint64_t version;
	struct kvw_auth_state state;
	struct kvw_jwt_gate *jwt; /* owned; NULL: tokens are not accepted */

	/* The thread's members. */
	pthread_t thread;
	bool started;
	_Atomic bool ends, wanted;
	int wake;   /* eventfd */
	int notify; /* inotify; -1: none */
	int watch;  /* watch of the folder; -1: none */
	struct stat seen; /* state of the file when it was read last; all 0: it could not be read */
	struct stat before; /* state of the file when it was checked before, ... */
	int64_t before_ns;  /* ... and the time when it was first in that state */
	bool failed;        /* reading the file in that state failed, and that was logged */
	/* retired_count keyrings, with a reference to each; this thread frees them */
	struct kvw_keyring **retired;
	size_t retired_count, retired_room;
	int missing; /* errno of a check that failed, and was logged */
};

/* --- keys --- */

/* Frees former keyrings that no request uses any more. That is done here because freeing 100,000
 * keys would delay a loop. */
static void free_retired(struct kvw_auth *auth)
{
	size_t kept = 0;

	for (size_t i = 0; i < auth->retired_count; i++) {
		if (kvw_keyring_alone(auth->retired[i]))
			kvw_keyring_unref(auth->retired[i]);
		else
			auth->retired[kept++] = auth->retired[i];
	}
	auth->retired_count = kept;
	atomic_store(&auth->state.retired, kept);
}

/* Takes over the reference. If memory is short, the last holder of a reference frees the
 * keyring. */
static void retire(struct kvw_auth *auth, struct kvw_keyring *ring)
{
	if (auth->retired_count == auth->retired_room) {
		size_t room = 2 * auth->retired_room + 4;
		struct kvw_keyring **more = realloc(auth->retired, room * sizeof(more[0]));

		if (more == NULL) {
			kvw_keyring_unref(ring);
			return;
		}
		auth->retired = more;
		auth->retired_room = room;
	}
	auth->retired[auth->retired_count++] = ring;
	free_retired(auth);
}

/* Without a file, each process of kvway has its own secret, so replicas differ, and a restart
 * changes it. */
void kvw_auth_saw_tenant(struct kvw_auth *auth)
{
	if (auth->tenants == NULL || kvw_tenants_last(auth->tenants) ||
		atomic_load_explicit(&auth->warned, memory_order_relaxed) ||
		atomic_exchange(&auth->warned, true))
		return;
	kvw_warn(ROOM, "clients have tenants, but auth.tenant_secret_file is not set: what workers "
		       "have cached for a tenant is found by this process alone, not by other "
		       "replicas of kvway nor after a restart");
}

/* Takes the ring. */
static void put_into_force(struct kvw_auth *auth, struct kvw_keyring *ring)
{
	struct kvw_keyring *before;

	pthread_mutex_lock(&auth->lock);
	before = auth->ring;
	auth->ring = ring;
	atomic_fetch_add_explicit(&auth->version, 1, memory_order_release);
	if (kvw_keyring_has_tenants(ring))
		kvw_auth_saw_tenant(auth);
	pthread_mutex_unlock(&auth->lock);
	if (before != NULL)
		retire(auth, before);
	atomic_store(&auth->state.keys, kvw_keyring_count(ring));
	atomic_store(&auth->state.last_ok_s, kvw_clock_wall_ns() / KVW_NS_PER_S);
	atomic_store(&auth->state.last_refused, false);
}

static void log_lines(const char *text)
{
	size_t count = 0;

	for (const char *line = text; line != NULL && *line != '\0';) {
		int len = (int)strcspn(line, "\n");

		if (count++ < LINES_MOST)
			kvw_error(ROOM, "%.*s", len, line);
		line += len + (line[len] == '\n');
	}
	if (count > LINES_MOST)
		kvw_error(ROOM, "%zu more lines about this file", count - LINES_MOST);
}

static void refuse_file(struct kvw_auth *auth, const char *mistakes)
{
	log_lines(mistakes);
	kvw_error(ROOM, "%s: is refused, the keys of before stay in force keys=%llu", auth->path,
		(unsigned long long)atomic_load(&auth->state.keys));
	atomic_store(&auth->state.last_refused, true);
	atomic_fetch_add(&auth->state.refused, 1);
}

/* --- the file --- */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool is_still(const struct kvw_auth *auth, const struct stat *state)
{
	struct stat now;

	return stat(auth->path, &now) == 0 && is_same_file(&now, state);
}

/* Reads the file, whose state is `now`. Returns false if the file changed during that; then the
 * result was dropped. */
static bool read_file(struct kvw_auth *auth, const struct stat *now)
{
	struct kvw_keyring *ring = NULL;
	char *mistakes = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&mistakes, &len);
	enum kvw_err err = KVW_ENOMEM;
	bool still;

	if (errors != NULL) {
		err = kvw_keys_file_load(auth->path, errors, &ring);
		fclose(errors);
	}
	still = is_still(auth, now);
	if (!still) {
		kvw_keyring_unref(ring);
	} else if (err == KVW_OK) {
		put_into_force(auth, ring);
		atomic_fetch_add(&auth->state.ok, 1);
		kvw_info(ROOM, "%s: read again keys=%zu", auth->path, kvw_keyring_count(ring));
	} else if (err == KVW_EINVAL || !auth->failed) {
		refuse_file(auth, err == KVW_ENOMEM ? "out of memory" : mistakes);
	}
	if (still && (err == KVW_OK || err == KVW_EINVAL))
		auth->seen = *now;
	else
		/* The file is read again later, because a revoked key must not stay valid. */
		memset(&auth->seen, 0, sizeof(auth->seen));
	auth->failed = still && err != KVW_OK && err != KVW_EINVAL;
	free(mistakes);
	return still;
}

/* Checks whether the file has changed. force: reads it even if not. Returns true if the file may
 * still be changing, so that it must be checked again soon. */
static bool look_at_file(struct kvw_auth *auth, bool force)
{
	int64_t now_ns = kvw_clock_ns();
	struct stat now;

	if (stat(auth->path, &now) != 0) {
		if (auth->missing != errno || force) {
			auth->missing = errno;
			kvw_warn(ROOM, "%s: cannot be read: %s; its keys stay in force", auth->path,
				strerror(errno));
		}
		return false;
	}
	auth->missing = 0;
	if (!force && is_same_file(&now, &auth->seen))
		return false;
	if (!is_same_file(&now, &auth->before)) {
		auth->before = now;
		auth->before_ns = now_ns;
		auth->failed = false;
	}
	if (now_ns - auth->before_ns < SETTLE_MS * KVW_NS_PER_MS)
		return true;
	return !read_file(auth, &now);
}

static void watch_folder(struct kvw_auth *auth)
{
	if (auth->notify >= 0 && auth->watch < 0)
		auth->watch = inotify_add_watch(auth->notify, auth->folder, WATCHED);
}

/* Reads the folder's events; whether they are about the file is then seen from its state. */
static void take_events(struct kvw_auth *auth)
{
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t len;

	while ((len = read(auth->notify, buffer, sizeof(buffer))) > 0) {
		for (char *at = buffer; at < buffer + len;) {
			const struct inotify_event *event = (const void *)at;

			if (event->mask & (IN_IGNORED | IN_MOVE_SELF) && event->wd == auth->watch) {
				if (event->mask & IN_MOVE_SELF)
					inotify_rm_watch(auth->notify, auth->watch);
				/* the next check tries to watch the folder again */
				auth->watch = -1;
			}
			at += sizeof(*event) + event->len;
		}
	}
}

static void *run_watcher(void *arg)
{
	struct kvw_auth *auth = arg;
	bool settling = false, force = false;

	(void)pthread_setname_np(pthread_self(), "kvway-auth");
	while (!atomic_load(&auth->ends)) {
		struct pollfd fds[2] = {{.fd = auth->wake, .events = POLLIN},
			{.fd = settling ? -1 : auth->notify, .events = POLLIN}};
		uint64_t count;
		int got;

		watch_folder(auth);
		got = poll(fds, 2, settling ? SETTLE_MS : INTERVAL_MS);
		if (got > 0 && fds[0].revents != 0)
			(void)!read(auth->wake, &count, sizeof(count));
		if (atomic_load(&auth->ends))
			break;
		if (atomic_exchange(&auth->wanted, false))
			force = true;
		if (got > 0 && fds[1].revents != 0)
			take_events(auth);
		settling = look_at_file(auth, force);
		force = force && settling;
		free_retired(auth);
	}
	return NULL;
}

/* --- life --- */

static bool set_paths(struct kvw_auth *auth, const char *path)
{
	char *copy = strdup(path);

	auth->path = strdup(path);
	if (copy != NULL)
		auth->folder = strdup(dirname(copy)); /* which may return a constant */
	free(copy);
	return auth->path != NULL && auth->folder != NULL;
}

/* Waits, for a limited time, until a file that may be changing is complete. */
static void settle_file(struct kvw_auth *auth)
{
	const struct timespec wait = {.tv_nsec = SETTLE_MS * KVW_NS_PER_MS};

	for (int tries = 0; tries < 20 && stat(auth->path, &auth->seen) == 0; tries++) {
		int64_t ctime_ns =
			auth->seen.st_ctim.tv_sec * KVW_NS_PER_S + auth->seen.st_ctim.tv_nsec;
		int64_t age_ns = kvw_clock_wall_ns() - ctime_ns;

		if (age_ns < 0 || age_ns >= SETTLE_MS * KVW_NS_PER_MS)
			return;
		nanosleep(&wait, NULL);
	}
}

/* Starts without a file, and so without keys. */
static enum kvw_err start_empty(struct kvw_auth *auth)
{
	struct kvw_keyring *ring;
	size_t twice;
	enum kvw_err err = kvw_keyring_create(NULL, 0, &ring, &twice);

	if (err == KVW_OK)
		put_into_force(auth, ring);
	return err;
}

enum kvw_err kvw_auth_start(const char *path, FILE *errors, struct kvw_auth **out)
{
	struct kvw_auth *auth = calloc(1, sizeof(*auth));
	struct kvw_keyring *ring = NULL;
	enum kvw_err err = KVW_ENOMEM;

	if (auth == NULL)
		return KVW_ENOMEM;
	auth->watch = auth->notify = auth->wake = -1;
	pthread_mutex_init(&auth->lock, NULL);
	if (path[0] == '\0') {
		err = start_empty(auth);
		if (err != KVW_OK)
			goto fail;
		*out = auth;
		return KVW_OK;
	}
	if (!set_paths(auth, path))
		goto fail;
	auth->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	auth->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (auth->wake < 0)
		goto fail;
	/* watched before the file is checked first, so that no change is missed */
	watch_folder(auth);
	settle_file(auth);
	err = kvw_keys_file_load(path, errors, &ring);
	if (err != KVW_OK)
		goto fail;
	put_into_force(auth, ring);
	err = KVW_ENOMEM;
	if (kvw_thread_start(&auth->thread, run_watcher, auth) != 0)
		goto fail;
	auth->started = true;
	*out = auth;
	return KVW_OK;
fail:
	kvw_auth_stop(auth);
	return err;
}

static void wake(struct kvw_auth *auth)
{
	uint64_t one = 1;

	(void)!write(auth->wake, &one, sizeof(one));
}

void kvw_auth_stop(struct kvw_auth *auth)
{
	if (auth == NULL)
		return;
	if (auth->started) {
		atomic_store(&auth->ends, true);
		wake(auth);
		pthread_join(auth->thread, NULL);
	}
	kvw_jwt_gate_stop(auth->jwt);
	if (auth->notify >= 0)
		close(auth->notify);
	if (auth->wake >= 0)
		close(auth->wake);
	kvw_keyring_unref(auth->ring);
	kvw_tenants_destroy(auth->tenants);
	for (size_t i = 0; i < auth->retired_count; i++)
		kvw_keyring_unref(auth->retired[i]);
	free(auth->retired);
	pthread_mutex_destroy(&auth->lock);
	free(auth->path);
	free(auth->folder);
	free(auth);
}

void kvw_auth_reload(struct kvw_auth *auth)
{
	if (auth->jwt != NULL)
		kvw_jwt_gate_reload(auth->jwt);
	if (!auth->started)
		return;
	atomic_store(&auth->wanted, true);
	wake(auth);
}

void kvw_auth_take_jwt(struct kvw_auth *auth, struct kvw_jwt_gate *gate)
{
	auth->jwt = gate;
}

struct kvw_jwt_gate *kvw_auth_jwt(const struct kvw_auth *auth)
{
	return auth->jwt;
}

enum kvw_err kvw_auth_isolate(struct kvw_auth *auth, const char *secret_file, FILE *errors)
{
	struct kvw_tenants *tenants;
	enum kvw_err err = kvw_tenants_create(secret_file, errors, &tenants);

	if (err != KVW_OK)
		return err;
	pthread_mutex_lock(&auth->lock);
	auth->tenants = tenants;
	if (kvw_keyring_has_tenants(auth->ring))
		kvw_auth_saw_tenant(auth);
	pthread_mutex_unlock(&auth->lock);
	return KVW_OK;
}

const struct kvw_tenants *kvw_auth_tenants(const struct kvw_auth *auth)
{
	return auth->tenants;
}

uint64_t kvw_auth_version(const struct kvw_auth *auth)
{
	return atomic_load_explicit(&auth->version, memory_order_acquire);
}

struct kvw_keyring *kvw_auth_take(struct kvw_auth *auth, uint64_t *version)
{
	struct kvw_keyring *ring;

	pthread_mutex_lock(&auth->lock);
	ring = auth->ring;
	kvw_keyring_ref(ring);
	*version = atomic_load_explicit(&auth->version, memory_order_relaxed);
	pthread_mutex_unlock(&auth->lock);
	return ring;
}

const struct kvw_auth_state *kvw_auth_state(const struct kvw_auth *auth)
{
	return &auth->state;
}
