/*
 * jwt_keys.c - reads or fetches the key set.
 *
 * A file is polled every FILE_MS; a URL is fetched every `auth.jwt.refresh`, and
 * `auth.jwt.refresh_pause` after a failure. If the bytes of the set are the same as before, nothing
 * changes: tokens that it has verified stay verified.
 *
 * The fetch follows no redirect and uses only https, so that only the configured host is trusted.
 */
#include "auth/jwt_keys.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define ROOM       "auth"
#define FILE_MS    2000
#define CONNECT_MS 5000L
#define FETCH_MS   10000L
#define WHY        256 /* bytes of a reason */

/* A document that was read. */
struct document {
	char *text; /* owned; room for KVW_JWKS_MAX_BYTES and one more byte */
	size_t len;
};

struct kvw_jwt_keys {
	const struct kvw_config *config;
	const char *from; /* the URL or path, from config */
	bool is_file;
	struct kvw_jwt_keys_state state;
	_Atomic uint64_t generation;

	pthread_mutex_t lock; /* of the next */
	pthread_cond_t woken;
	struct kvw_jwks *jwks;
	bool wanted, fetching;
	int64_t tried_ns; /* end of the last fetch; 0: there was none */

	/* The thread's members. */
	pthread_t thread;
	bool started;
	_Atomic bool ends; /* also aborts a fetch */
	struct document now, next; /* in force, being read */
	struct stat seen; /* state of the file when it was read last */
	bool failing;     /* the last one failed, */
	char why[WHY];    /* the last failure, which was logged */
};

/* --- reading --- */

static enum kvw_err read_file(
	const char *path, struct document *out, struct stat *info, char why[WHY])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = 1;

	out->len = 0;
	if (fd < 0 || fstat(fd, info) != 0) {
		snprintf(why, WHY, "cannot be read: %s", strerror(errno));
	} else if (!S_ISREG(info->st_mode)) {
		snprintf(why, WHY, "cannot be read: not a regular file");
	} else {
		while (n > 0 && out->len <= KVW_JWKS_MAX_BYTES) {
			n = read(fd, out->text + out->len, KVW_JWKS_MAX_BYTES + 1 - out->len);
			out->len += n > 0 ? (size_t)n : 0;
		}
		if (n < 0)
			snprintf(why, WHY, "cannot be read: %s", strerror(errno));
		close(fd);
		return n < 0 ? KVW_EIO : KVW_OK;
	}
	if (fd >= 0)
		close(fd);
	return KVW_EIO;
}

static size_t on_body(char *data, size_t one, size_t len, void *arg)
{
	struct document *out = arg;

	(void)one;
	if (len > KVW_JWKS_MAX_BYTES - out->len) /* the transfer ends */
		return 0;
	memcpy(out->text + out->len, data, len);
	out->len += len;
	return len;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct kvw_jwt_keys *keys = arg;

	(void)a, (void)b, (void)c, (void)d;
	return atomic_load(&keys->ends);
}

static bool set_options(struct kvw_jwt_keys *keys, CURL *easy, char *error)
{
	const char *ca_file = keys->config->auth_jwt_jwks_ca_file;

	return curl_easy_setopt(easy, CURLOPT_URL, keys->from) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) ==
		       CURLE_OK &&
	       (ca_file[0] == '\0' ||
		       (curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file) == CURLE_OK &&
			       curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK)) &&
	       curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_USERAGENT, "kvway/" KVW_VERSION) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, FETCH_MS) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_MAXFILESIZE, (long)KVW_JWKS_MAX_BYTES) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEDATA, &keys->next) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_XFERINFODATA, keys) == CURLE_OK;
}

static enum kvw_err fetch(struct kvw_jwt_keys *keys, char why[WHY])
{
	char error[CURL_ERROR_SIZE] = "";
	CURL *easy = curl_easy_init();
	CURLcode code = CURLE_FAILED_INIT;
	long status = 0;

	keys->next.len = 0;
	if (easy != NULL && set_options(keys, easy, error))
		code = curl_easy_perform(easy);
	if (code == CURLE_OK)
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(easy);
	if (code == CURLE_FILESIZE_EXCEEDED || code == CURLE_WRITE_ERROR)
		snprintf(why, WHY, "found more than %zu bytes, expected a set of keys",
			KVW_JWKS_MAX_BYTES);
	else if (code != CURLE_OK)
		snprintf(why, WHY, "%.200s", error[0] != '\0' ? error : curl_easy_strerror(code));
	else if (status != 200)
		snprintf(why, WHY, "answered with status %ld, expected 200", status);
	return code == CURLE_OK && status == 200 ? KVW_OK : KVW_EIO;
}

/* --- the set in force --- */

/* Makes jwks the present set, and takes it over; NULL: there are no keys any more. */
static void put_into_force(struct kvw_jwt_keys *keys, struct kvw_jwks *jwks)
{
	struct kvw_jwks *before;

	pthread_mutex_lock(&keys->lock);
	before = keys->jwks;
	keys->jwks = jwks;
	atomic_fetch_add_explicit(&keys->generation, 1, memory_order_release);
	atomic_store(&keys->state.keys, jwks == NULL ? 0 : kvw_jwks_count(jwks));
	pthread_mutex_unlock(&keys->lock);
	kvw_jwks_unref(before);
}

static bool is_same(const struct kvw_jwt_keys *keys)
{
	return atomic_load(&keys->state.keys) > 0 && keys->now.len == keys->next.len &&
	       memcmp(keys->now.text, keys->next.text, keys->next.len) == 0;
}

/* Parses the document that was read, and makes it the present set. */
static enum kvw_err take_over(struct kvw_jwt_keys *keys, char why[WHY])
{
	struct kvw_jwks *jwks = NULL;
	struct document swap = keys->now;
	enum kvw_err err;

	if (is_same(keys))
		return KVW_OK;
	err = kvw_jwks_parse(keys->next.text, keys->next.len, why, WHY, &jwks);
	if (err == KVW_ENOMEM)
		snprintf(why, WHY, "out of memory");
	if (err == KVW_ENOTFOUND && atomic_load(&keys->state.keys) > 0)
		put_into_force(keys, NULL); /* the issuer has withdrawn all keys */
	if (err != KVW_OK)
		return err;
	keys->now = keys->next;
	keys->next = swap;
	kvw_info(ROOM, "%s: keys of tokens read keys=%zu left_out=%zu", keys->from,
		kvw_jwks_count(jwks), kvw_jwks_skipped(jwks));
	put_into_force(keys, jwks);
	return KVW_OK;
}

static bool has_changed(const struct kvw_jwt_keys *keys)
{
	const struct stat *seen = &keys->seen;
	struct stat now;

	return stat(keys->from, &now) != 0 || now.st_ino != seen->st_ino ||
	       now.st_dev != seen->st_dev || now.st_size != seen->st_size ||
	       now.st_mtim.tv_sec != seen->st_mtim.tv_sec ||
	       now.st_mtim.tv_nsec != seen->st_mtim.tv_nsec;
}

static enum kvw_err read_again(struct kvw_jwt_keys *keys, bool force, char why[WHY])
{
	enum kvw_err err;

	if (keys->is_file && !force && !keys->failing && atomic_load(&keys->state.ok) > 0 &&
		!has_changed(keys))
		return KVW_OK;
	err = keys->is_file ? read_file(keys->from, &keys->next, &keys->seen, why)
			    : fetch(keys, why);
	if (err == KVW_OK)
		err = take_over(keys, why);
	if (err == KVW_OK)
		atomic_fetch_add(&keys->state.ok, 1);
	else
		atomic_fetch_add(&keys->state.failed, 1);
	return err;
}

/* Drops the keys if no set could be read for too long, because the issuer may have withdrawn
 * them. */
static void drop_old(struct kvw_jwt_keys *keys, int64_t now_ns)
{
	int64_t keep_ns = keys->config->auth_jwt_keep_ms * KVW_NS_PER_MS;

	if (atomic_load(&keys->state.keys) == 0 ||
		now_ns - atomic_load(&keys->state.last_ok_ns) < keep_ns)
		return;
	kvw_error(ROOM,
		"%s: not read for too long (auth.jwt.keep): no token is accepted until it is",
		keys->from);
	put_into_force(keys, NULL);
}

static void refresh(struct kvw_jwt_keys *keys, bool force)
{
	char why[WHY] = "";
	enum kvw_err err = read_again(keys, force, why);
	uint64_t count;

	if (err == KVW_OK) {
		if (keys->failing)
			kvw_info(ROOM, "%s: can be read again", keys->from);
		keys->failing = false;
		atomic_store(&keys->state.last_ok_ns, kvw_clock_ns());
		return;
	}
	if (atomic_load(&keys->ends))
		return;
	count = atomic_load(&keys->state.keys);
	if (!keys->failing || strcmp(keys->why, why) != 0)
		kvw_warn(ROOM, "%s: %s; %s keys=%llu", keys->from, why,
			count == 0 ? "no token is accepted until there are keys"
				   : "the keys of before stay in force",
			(unsigned long long)count);
	keys->failing = true;
	memcpy(keys->why, why, sizeof(why));
	drop_old(keys, kvw_clock_ns());
}

/* --- the thread --- */

static int64_t pause_ms(const struct kvw_jwt_keys *keys)
{
	const struct kvw_config *config = keys->config;

	if (keys->is_file)
		return FILE_MS;
	if (keys->failing && config->auth_jwt_refresh_pause_ms < config->auth_jwt_refresh_ms)
		return config->auth_jwt_refresh_pause_ms;
	return config->auth_jwt_refresh_ms;
}

/* The lock is held. */
static void sleep_until(struct kvw_jwt_keys *keys, int64_t at_ns)
{
	const struct timespec at = {at_ns / KVW_NS_PER_S, at_ns % KVW_NS_PER_S};

	while (!atomic_load(&keys->ends) && !keys->wanted)
		if (pthread_cond_timedwait(&keys->woken, &keys->lock, &at) == ETIMEDOUT)
			return;
}

static void *run_fetcher(void *arg)
{
	struct kvw_jwt_keys *keys = arg;
	int64_t next_ns = keys->is_file ? kvw_clock_ns() + FILE_MS * KVW_NS_PER_MS : 0;

	(void)pthread_setname_np(pthread_self(), "kvway-jwt");
	pthread_mutex_lock(&keys->lock);
	while (true) {
		bool force;

		sleep_until(keys, next_ns);
		if (atomic_load(&keys->ends))
			break;
		force = keys->wanted;
		keys->wanted = false;
		keys->fetching = true;
		pthread_mutex_unlock(&keys->lock);
		refresh(keys, force);
		next_ns = kvw_clock_ns() + pause_ms(keys) * KVW_NS_PER_MS;
		pthread_mutex_lock(&keys->lock);
		keys->fetching = false;
		keys->tried_ns = kvw_clock_ns();
	}
	pthread_mutex_unlock(&keys->lock);
	return NULL;
}

/* --- life --- */

static enum kvw_err start_file(struct kvw_jwt_keys *keys, FILE *errors)
{
	char why[WHY] = "";
	enum kvw_err err = read_again(keys, true, why);

	if (err != KVW_OK) {
		fprintf(errors, "%s: %s\n", keys->from, why);
		return err == KVW_ENOTFOUND ? KVW_EINVAL : err;
	}
	atomic_store(&keys->state.last_ok_ns, kvw_clock_ns());
	keys->tried_ns = kvw_clock_ns();
	return KVW_OK;
}

static void init_waiting(struct kvw_jwt_keys *keys)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&keys->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* kvw_clock_ns() */
	pthread_cond_init(&keys->woken, &attr);
	pthread_condattr_destroy(&attr);
}

enum kvw_err kvw_jwt_keys_start(
	const struct kvw_config *config, FILE *errors, struct kvw_jwt_keys **out)
{
	struct kvw_jwt_keys *keys = calloc(1, sizeof(*keys));
	enum kvw_err err = KVW_ENOMEM;

	if (keys == NULL)
		return KVW_ENOMEM;
	init_waiting(keys);
	keys->config = config;
	keys->is_file = config->auth_jwt_jwks_file[0] != '\0';
	keys->from = keys->is_file ? config->auth_jwt_jwks_file : config->auth_jwt_jwks_url;
	keys->now.text = malloc(KVW_JWKS_MAX_BYTES + 1);
	keys->next.text = malloc(KVW_JWKS_MAX_BYTES + 1);
	if (keys->now.text == NULL || keys->next.text == NULL ||
		(!keys->is_file && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK))
		goto fail;
	if (keys->is_file && (err = start_file(keys, errors)) != KVW_OK)
		goto fail;
	keys->fetching = !keys->is_file;
	err = KVW_ENOMEM;
	if (kvw_thread_start(&keys->thread, run_fetcher, keys) != 0)
		goto fail;
	keys->started = true;
	*out = keys;
	return KVW_OK;
fail:
	kvw_jwt_keys_stop(keys);
	return err;
}

void kvw_jwt_keys_reload(struct kvw_jwt_keys *keys)
{
	pthread_mutex_lock(&keys->lock);
	keys->wanted = true;
	pthread_cond_signal(&keys->woken);
	pthread_mutex_unlock(&keys->lock);
}

void kvw_jwt_keys_stop(struct kvw_jwt_keys *keys)
{
	if (keys == NULL)
		return;
	if (keys->started) {
		atomic_store(&keys->ends, true);
		kvw_jwt_keys_reload(keys);
		pthread_join(keys->thread, NULL);
	}
	kvw_jwks_unref(keys->jwks);
	pthread_cond_destroy(&keys->woken);
	pthread_mutex_destroy(&keys->lock);
	free(keys->now.text);
	free(keys->next.text);
	free(keys);
}

enum kvw_err kvw_jwt_keys_check(const char *path, FILE *errors, size_t *count)
{
	struct document document = {.text = malloc(KVW_JWKS_MAX_BYTES + 1)};
	struct kvw_jwks *jwks = NULL;
	char why[WHY] = "out of memory";
	enum kvw_err err = KVW_ENOMEM;
	struct stat info;

	if (document.text != NULL)
		err = read_file(path, &document, &info, why);
	if (err == KVW_OK)
		err = kvw_jwks_parse(document.text, document.len, why, WHY, &jwks);
	if (err == KVW_OK)
		*count = kvw_jwks_count(jwks);
	else
		fprintf(errors, "%s: %s\n", path, why);
	kvw_jwks_unref(jwks);
	free(document.text);
	return err == KVW_ENOTFOUND ? KVW_EINVAL : err;
}

uint64_t kvw_jwt_keys_generation(const struct kvw_jwt_keys *keys)
{
	return atomic_load_explicit(&keys->generation, memory_order_acquire);
}

struct kvw_jwks *kvw_jwt_keys_take(struct kvw_jwt_keys *keys, uint64_t *generation)
{
	struct kvw_jwks *jwks;

	pthread_mutex_lock(&keys->lock);
	jwks = keys->jwks;
	if (jwks != NULL)
		kvw_jwks_ref(jwks);
	*generation = atomic_load_explicit(&keys->generation, memory_order_relaxed);
	pthread_mutex_unlock(&keys->lock);
	return jwks;
}

bool kvw_jwt_keys_want(struct kvw_jwt_keys *keys)
{
	int64_t pause_ns = keys->config->auth_jwt_refresh_pause_ms * KVW_NS_PER_MS;
	bool coming;

	pthread_mutex_lock(&keys->lock);
	if (!keys->wanted && !keys->fetching && kvw_clock_ns() - keys->tried_ns >= pause_ns) {
		keys->wanted = true;
		pthread_cond_signal(&keys->woken);
	}
	coming = keys->wanted || keys->fetching;
	pthread_mutex_unlock(&keys->lock);
	return coming;
}

const struct kvw_jwt_keys_state *kvw_jwt_keys_state(const struct kvw_jwt_keys *keys)
{
	return &keys->state;
}

int64_t kvw_jwt_keys_age_s(const struct kvw_jwt_keys_state *state, int64_t now_ns)
{
	int64_t seen_ns = atomic_load(&state->last_ok_ns);

	if (seen_ns == 0)
		return -1;
	return now_ns > seen_ns ? (now_ns - seen_ns) / KVW_NS_PER_S : 0;
}
