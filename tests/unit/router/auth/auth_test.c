/*
 * auth_test.c - the keys in force follow their file, as it is replaced and broken.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "auth/auth.h"
#include "tests/unit/suite.h"

static char folder[] = "/tmp/kvw-auth-XXXXXX";
static char path[64], other[64];

static void write_file(const char *where, const char *text)
{
	FILE *out = fopen(where, "w");

	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	ck_assert_int_eq(fclose(out), 0);
}

/* Replaces it as an editor or Kubernetes does. */
static void replace(const char *text)
{
	write_file(other, text);
	ck_assert_int_eq(rename(other, path), 0);
}

static void entry(char *out, size_t room, const char *name, const char *key)
{
	struct kvw_digest digest;
	size_t used = (size_t)snprintf(out, room, "keys:\n  - name: %s\n    sha256: ", name);

	kvw_key_digest(kvw_slice_of(key), &digest);
	for (size_t i = 0; i < sizeof(digest.bytes); i++)
		used += (size_t)snprintf(out + used, room - used, "%02x", digest.bytes[i]);
	snprintf(out + used, room - used, "\n");
}

static void pause_ms(long ms)
{
	const struct timespec wait = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&wait, NULL);
}

/* Until the counter has this value; fails after 20 s. */
static void await(const _Atomic uint64_t *counter, uint64_t value)
{
	for (int i = 0; i < 4000 && atomic_load(counter) < value; i++)
		pause_ms(5);
	ck_assert_uint_eq(atomic_load(counter), value);
}

static const char *name_of(struct kvw_auth *auth, const char *key, struct kvw_keyring **ring)
{
	const struct kvw_client_key *found;
	struct kvw_digest digest;
	uint64_t version;

	*ring = kvw_auth_take(auth, &version);
	kvw_key_digest(kvw_slice_of(key), &digest);
	found = kvw_keyring_find(*ring, &digest);
	return found == NULL ? NULL : found->name;
}

START_TEST(it_follows_the_file)
{
	struct kvw_keyring *first, *ring;
	struct kvw_auth *auth = NULL;
	const struct kvw_auth_state *state;
	const char *name;
	char text[256];
	uint64_t version;

	entry(text, sizeof(text), "alice", "one");
	write_file(path, text);
	ck_assert_int_eq(kvw_auth_start(path, stderr, &auth), KVW_OK);
	state = kvw_auth_state(auth);
	version = kvw_auth_version(auth);
	ck_assert_uint_eq(atomic_load(&state->keys), 1);
	name = name_of(auth, "one", &first);
	ck_assert_str_eq(name, "alice");

	entry(text, sizeof(text), "bob", "two");
	replace(text);
	await(&state->ok, 1);
	ck_assert_uint_ne(kvw_auth_version(auth), version);
	ck_assert_str_eq(name, "alice"); /* a request of before still has it */
	kvw_keyring_unref(first);
	ck_assert_ptr_null(name_of(auth, "one", &ring));
	kvw_keyring_unref(ring);
	ck_assert_str_eq(name_of(auth, "two", &ring), "bob");
	kvw_keyring_unref(ring);

	replace("keys: [{name: x}]\n");
	await(&state->refused, 1);
	ck_assert(atomic_load(&state->last_refused));
	ck_assert_str_eq(name_of(auth, "two", &ring), "bob");
	kvw_keyring_unref(ring);

	ck_assert_int_eq(unlink(path), 0);
	entry(text, sizeof(text), "carol", "three");
	replace(text);
	await(&state->ok, 2);
	ck_assert(!atomic_load(&state->last_refused));
	ck_assert_str_eq(name_of(auth, "three", &ring), "carol");
	kvw_keyring_unref(ring);

	kvw_auth_reload(auth); /* nothing has changed, and it is read all the same */
	await(&state->ok, 3);
	kvw_auth_stop(auth);
}
END_TEST

/* Not by the thread that lets go of them last, which serves requests. */
START_TEST(former_keys_are_freed_by_the_thread_of_keys)
{
	const struct kvw_auth_state *state;
	struct kvw_keyring *first;
	struct kvw_auth *auth = NULL;
	char text[256];

	entry(text, sizeof(text), "alice", "one");
	write_file(path, text);
	ck_assert_int_eq(kvw_auth_start(path, stderr, &auth), KVW_OK);
	state = kvw_auth_state(auth);
	ck_assert_ptr_nonnull(name_of(auth, "one", &first));
	entry(text, sizeof(text), "bob", "two");
	replace(text);
	await(&state->ok, 1);
	ck_assert(!kvw_keyring_alone(first));
	ck_assert_uint_eq(atomic_load(&state->retired), 1);
	kvw_keyring_unref(first);
	for (int i = 0; i < 4000 && atomic_load(&state->retired) > 0; i++)
		pause_ms(5);
	ck_assert_uint_eq(atomic_load(&state->retired), 0);
	kvw_auth_stop(auth);
}
END_TEST

/* With no descriptor left the file cannot be opened: its state does not count as read. */
START_TEST(a_file_that_could_not_be_read_is_tried_again)
{
	const struct kvw_auth_state *state;
	struct kvw_keyring *ring;
	struct kvw_auth *auth = NULL;
	struct rlimit limit, none;
	char text[256];
	int next;

	entry(text, sizeof(text), "alice", "one");
	write_file(path, text);
	ck_assert_int_eq(kvw_auth_start(path, stderr, &auth), KVW_OK);
	state = kvw_auth_state(auth);
	entry(text, sizeof(text), "bob", "two");
	write_file(other, text);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	next = dup(0);
	ck_assert_int_gt(next, 2);
	close(next);
	none = limit;
	none.rlim_cur = (rlim_t)next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(rename(other, path), 0);
	await(&state->refused, 1);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	await(&state->ok, 1);
	ck_assert_ptr_null(name_of(auth, "one", &ring));
	kvw_keyring_unref(ring);
	kvw_auth_stop(auth);
}
END_TEST

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Goes on for 300 ms, in which the file is asked for. Returns the longest pause between two changes of it. */
static int64_t write_slowly(struct kvw_auth *auth, const char *text)
{
	int64_t begin = now_ms(), last = begin, longest = 0;
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	fflush(out);
	kvw_auth_reload(auth);
	while (last - begin < 300) {
		int64_t now;

		fputs("# more\n", out);
		fflush(out);
		pause_ms(5);
		now = now_ms();
		longest = now - last > longest ? now - last : longest;
		last = now;
	}
	fclose(out);
	return longest;
}

/* The first half of a file is good by itself, and widens the rights of its last entry. */
START_TEST(a_file_that_is_being_written_is_not_read)
{
	const struct kvw_auth_state *state;
	struct kvw_auth *auth = NULL;
	char text[256];

	for (int tries = 0; tries < 10; tries++) {
		uint64_t ok;
		int64_t longest;

		entry(text, sizeof(text), "alice", "one");
		write_file(path, text);
		ck_assert_int_eq(kvw_auth_start(path, stderr, &auth), KVW_OK);
		state = kvw_auth_state(auth);
		entry(text, sizeof(text), "bob", "two");
		longest = write_slowly(auth, text);
		ok = atomic_load(&state->ok);
		if (longest < 40) /* a longer one may pass for the end */
			ck_assert_uint_eq(ok, 0);
		for (int i = 0; i < 4000 && atomic_load(&state->ok) == 0; i++)
			pause_ms(5);
		ck_assert_uint_gt(atomic_load(&state->ok), 0);
		kvw_auth_stop(auth);
		if (longest < 40)
			break;
	}
}
END_TEST

START_TEST(a_bad_file_is_no_start)
{
	struct kvw_auth *auth = NULL;
	char *said = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&said, &len);

	write_file(path, "keys: 1\n");
	ck_assert_int_eq(kvw_auth_start(path, errors, &auth), KVW_EINVAL);
	ck_assert_int_eq(kvw_auth_start("/nowhere/x", errors, &auth), KVW_EIO);
	fclose(errors);
	ck_assert_ptr_null(auth);
	ck_assert_ptr_nonnull(strstr(said, ":1:7: keys: found text"));
	free(said);
	kvw_auth_stop(NULL);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("auth");
	int failed;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/keys.yaml", folder);
	snprintf(other, sizeof(other), "%s/new.yaml", folder);
	tcase_set_timeout(tcase, 90);
	tcase_add_test(tcase, it_follows_the_file);
	tcase_add_test(tcase, former_keys_are_freed_by_the_thread_of_keys);
	tcase_add_test(tcase, a_file_that_could_not_be_read_is_tried_again);
	tcase_add_test(tcase, a_file_that_is_being_written_is_not_read);
	tcase_add_test(tcase, a_bad_file_is_no_start);
	failed = run_tcase("auth", tcase);
	(void)unlink(path);
	(void)rmdir(folder);
	return failed;
}
