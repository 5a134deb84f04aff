/*
 * kube_call.c - sends requests to the API of Kubernetes.
 *
 * libcurl caches authorities by the name of their file for a day, so kvway reads the file and
 * passes the bytes: new contents are then another TLS configuration, for which old connections are
 * not used. (With GnuTLS libcurl takes only the name, and does not cache.) A call that fails before
 * it reaches libcurl ends by an event, so that its user has one path for all ends.
 *
 * `silence` is the timer of a watch: it limits the time until the answer begins, and is set again
 * by each piece of the answer.
 */
#include "fleet/discovery/kube_call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/read_file.h"
#include "fleet/discovery/kube_object.h"

#define FILE_MOST     ((size_t)1 << 20) /* authorities */
#define WORD_MOST     ((size_t)64 << 10)
#define STATUS_MOST   ((size_t)64 << 10) /* longest body of an error that is read */
#define RETRY_MOST_MS 60000

struct kvw_kube_call {
	struct kvw_curl_loop *loop;
	const struct kvw_config *config;
	const struct kvw_kube_call_ops *ops;
	void *arg;
	CURL *easy; /* running; else NULL */
	struct curl_slist *headers;
	/* silence: a watch's timer; later: ends a call that could not begin */
	struct event *silence, *later;
	const char *patch; /* body of a PATCH until libcurl has copied it; else NULL */
	bool watch, open;
	/* why a callback of libcurl ended the transfer; NONE: it did not */
	enum kvw_kube_fault fault;
	char *body; /* body of a list or an error, or the incomplete last line of a watch */
	size_t len, room;
	char why[KVW_KUBE_WHY];
	char error[CURL_ERROR_SIZE];
};

const char *kvw_kube_fault_name(enum kvw_kube_fault fault)
{
	static const char *const names[KVW_KUBE_FAULTS] = {
		[KVW_KUBE_CONNECT] = "connect",
		[KVW_KUBE_TLS] = "tls",
		[KVW_KUBE_TIMEOUT] = "timeout",
		[KVW_KUBE_IDLE] = "idle",
		[KVW_KUBE_CUT] = "cut",
		[KVW_KUBE_DENIED] = "denied",
		[KVW_KUBE_GONE] = "gone",
		[KVW_KUBE_THROTTLED] = "throttled",
		[KVW_KUBE_SERVER] = "server",
		[KVW_KUBE_STATUS] = "status",
		[KVW_KUBE_MALFORMED] = "malformed",
		[KVW_KUBE_TOO_LARGE] = "too_large",
		[KVW_KUBE_LOCAL] = "local",
	};

	return names[fault];
}

/* --- files --- */

static enum kvw_err read_file(
	const char *path, size_t most, char **out, size_t *len, char *why, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char *text = fd < 0 ? NULL : malloc(most + 1);
	enum kvw_err err = KVW_EIO, got = KVW_OK;

	if (text != NULL)
		got = kvw_read_all(fd, text, most + 1, len);
	if (fd < 0 || got != KVW_OK)
		snprintf(why, room, "%.200s: cannot be read: %s", path, strerror(errno));
	else if (text == NULL)
		err = KVW_ENOMEM;
	else if (*len > most)
		snprintf(why, room, "%.200s: found more than %zu bytes", path, most);
	else
		err = KVW_OK;
	if (fd >= 0)
		close(fd);
	if (err == KVW_OK)
		*out = text;
	else
		free(text);
	return err;
}

enum kvw_err kvw_kube_read_word(const char *path, char **out, char *why, size_t room)
{
	char *text, *start;
	size_t len;
	enum kvw_err err = read_file(path, WORD_MOST, &text, &len, why, room);

	if (err != KVW_OK)
		return err;
	text[len] = '\0';
	start = text + strspn(text, " \t\r\n");
	len = strcspn(start, " \t\r\n");
	for (size_t i = 0; i < len; i++)
		if (start[i] <= ' ' || start[i] > '~')
			len = 0;
	memmove(text, start, len);
	text[len] = '\0';
	if (len == 0) {
		snprintf(why, room, "%.200s: found no word in it", path);
		free(text);
		return KVW_EIO;
	}
	*out = text;
	return KVW_OK;
}

enum kvw_err kvw_kube_trust(CURL *easy, const char *path, char *why, size_t room)
{
	struct curl_blob blob = {.flags = CURL_BLOB_COPY};
	enum kvw_err err;
	char *text;
	bool ok;

	err = read_file(path, FILE_MOST, &text, &blob.len, why, room);
	if (err != KVW_OK)
		return err;
	blob.data = text;
	ok = curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &blob) == CURLE_OK &&
	     curl_easy_setopt(easy, CURLOPT_CAINFO, NULL) == CURLE_OK;
	ok = ok || curl_easy_setopt(easy, CURLOPT_CAINFO, path) == CURLE_OK;
	ok = ok && curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
	free(text);
	return ok ? KVW_OK : KVW_ENOMEM;
}

char *kvw_kube_namespace(const struct kvw_config *config, size_t pool, char *why, size_t room)
{
	const char *slash = strrchr(config->discovery_kube_token_file, '/');
	char *path, *name = NULL;

	if (config->pools[pool].namespace[0] != '\0')
		return strdup(config->pools[pool].namespace);
	if (config->discovery_kube_namespace[0] != '\0')
		return strdup(config->discovery_kube_namespace);
	if (slash == NULL) {
		snprintf(why, room, "found no discovery.kubernetes.namespace");
		return NULL;
	}
	if (asprintf(&path, "%.*s/namespace", (int)(slash - config->discovery_kube_token_file),
		    config->discovery_kube_token_file) < 0)
		return NULL;
	if (kvw_kube_read_word(path, &name, why, room) != KVW_OK)
		name = NULL;
	free(path);
	return name;
}

/* --- what arrives --- */

static void set_silence(struct kvw_kube_call *call)
{
	int64_t ms = call->open ? call->config->discovery_kube_idle_ms
				: call->config->discovery_kube_timeout_ms;
	const struct timeval delay = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(call->silence, &delay);
}

static bool append(struct kvw_kube_call *call, const char *data, size_t len, size_t most)
{
	if (len == 0)
		return true;
	if (len > most - call->len) {
		call->fault = KVW_KUBE_TOO_LARGE;
		snprintf(call->why, sizeof(call->why), "more than %zu bytes in one %s", most,
			call->watch ? "event" : "page");
		return false;
	}
	if (call->len + len > call->room) {
		size_t room = call->room == 0 ? 16384 : call->room;
		char *grown;

		while (room < call->len + len)
			room *= 2;
		grown = realloc(call->body, room);
		if (grown == NULL) {
			call->fault = KVW_KUBE_LOCAL;
			snprintf(call->why, sizeof(call->why), "out of memory");
			return false;
		}
		call->body = grown;
		call->room = room;
	}
	memcpy(call->body + call->len, data, len);
	call->len += len;
	return true;
}

static bool hand_over_line(struct kvw_kube_call *call, struct kvw_slice line)
{
	if (line.len > 0 && line.data[line.len - 1] == '\r')
		line.len--;
	return line.len == 0 || call->ops->line(call->arg, line);
}

/* Reports complete lines; keeps an incomplete one. */
static bool take_lines(struct kvw_kube_call *call, const char *data, size_t len)
{
	const char *end;

	while (len > 0 && (end = memchr(data, '\n', len)) != NULL) {
		size_t part = (size_t)(end - data);
		bool on;

		if (call->len > 0) {
			if (!append(call, data, part, KVW_KUBE_EVENT_BYTES))
				return false;
			on = hand_over_line(call, (struct kvw_slice){call->body, call->len});
			call->len = 0;
		} else {
			on = hand_over_line(call, (struct kvw_slice){data, part});
		}
		if (!on) {
			call->fault = KVW_KUBE_NONE;
			return false;
		}
		data += part + 1;
		len -= part + 1;
	}
	return append(call, data, len, KVW_KUBE_EVENT_BYTES);
}

static long status_of(const struct kvw_kube_call *call)
{
	long status = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

static size_t on_body(char *data, size_t one, size_t len, void *arg)
{
	struct kvw_kube_call *call = arg;
	bool on;

	(void)one;
	if (status_of(call) != 200) { /* the beginning of an error's body is enough */
		size_t left = STATUS_MOST > call->len ? STATUS_MOST - call->len : 0;

		on = append(call, data, len < left ? len : left, STATUS_MOST);
	} else if (call->watch) {
		set_silence(call);
		on = take_lines(call, data, len);
	} else {
		on = append(call, data, len, KVW_KUBE_PAGE_BYTES);
	}
	return on ? len : 0;
}

/* Handles a header line; the empty one ends the head. */
static size_t on_header(char *data, size_t one, size_t len, void *arg)
{
	struct kvw_kube_call *call = arg;

	(void)one;
	if (call->watch && !call->open && len <= 2 && (data[0] == '\r' || data[0] == '\n') &&
		status_of(call) == 200) {
		call->open = true;
		set_silence(call);
		call->ops->open(call->arg);
	}
	return len;
}

/* --- the end --- */

static void put_away(struct kvw_kube_call *call)
{
	if (call->easy != NULL)
		curl_easy_cleanup(call->easy);
	call->easy = NULL;
	curl_slist_free_all(call->headers);
	call->headers = NULL;
	event_del(call->silence);
	event_del(call->later);
}

static void end_call(struct kvw_kube_call *call, enum kvw_kube_fault fault, int64_t wait_ms)
{
	struct kvw_kube_result result = {.fault = fault, .why = call->why, .wait_ms = wait_ms};
	char *body = call->body;

	if (fault == KVW_KUBE_NONE && !call->watch)
		result.body = (struct kvw_slice){body, call->len};
	call->body = NULL; /* the next call begins without a body */
	call->len = call->room = 0;
	put_away(call);
	call->ops->ended(call->arg, &result);
	free(body);
}

static enum kvw_kube_fault fault_of_status(long status)
{
	if (status == 401 || status == 403)
		return KVW_KUBE_DENIED;
	if (status == 410)
		return KVW_KUBE_GONE;
	if (status == 429)
		return KVW_KUBE_THROTTLED;
	return status >= 500 && status <= 599 ? KVW_KUBE_SERVER : KVW_KUBE_STATUS;
}

static enum kvw_kube_fault fault_of_code(CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return KVW_KUBE_NONE;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_ISSUER_ERROR:
		return KVW_KUBE_TLS;
	case CURLE_OPERATION_TIMEDOUT:
		return KVW_KUBE_TIMEOUT;
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_GOT_NOTHING:
		return KVW_KUBE_CUT;
	case CURLE_OUT_OF_MEMORY:
		return KVW_KUBE_LOCAL;
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return KVW_KUBE_MALFORMED;
	default:
		return KVW_KUBE_CONNECT;
	}
}

static int64_t wait_of(const struct kvw_kube_call *call)
{
	curl_off_t seconds = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &seconds);
	if (seconds <= 0)
		return 0;
	return seconds >= RETRY_MOST_MS / 1000 ? RETRY_MOST_MS : (int64_t)seconds * 1000;
}

/* Writes "status 403: pods is forbidden: ..." as the cause. */
static void say_status(struct kvw_kube_call *call, long status)
{
	char message[200];

	kvw_kube_status_read(
		call->body == NULL ? "" : call->body, call->len, message, sizeof(message));
	snprintf(call->why, sizeof(call->why), "status %ld%s%s", status,
		message[0] != '\0' ? ": " : "", message);
}

void kvw_kube_call_done(void *user, CURLcode code)
{
	struct kvw_kube_call *call = user;
	long status = status_of(call);
	int64_t wait_ms = 0;

	if (call->fault != KVW_KUBE_NONE) {
		code = CURLE_OK; /* a callback has ended the transfer and set the fault */
	} else if (status != 0 && status != 200) {
		call->fault = fault_of_status(status);
		wait_ms = wait_of(call);
		say_status(call, status);
	} else if (code != CURLE_OK && code != CURLE_WRITE_ERROR) {
		call->fault = fault_of_code(code);
		snprintf(call->why, sizeof(call->why), "%s",
			call->error[0] != '\0' ? call->error : curl_easy_strerror(code));
	} else if (call->watch && call->len > 0) {
		call->fault = KVW_KUBE_CUT;
		snprintf(call->why, sizeof(call->why), "the watch ended in the middle of an event");
	}
	end_call(call, call->fault, wait_ms);
}

static void on_silence(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_kube_call *call = arg;

	(void)fd;
	(void)what;
	kvw_curl_loop_abort(call->loop, call->easy);
	snprintf(call->why, sizeof(call->why),
		call->open ? "the watch was silent for discovery.kubernetes.watch_idle"
			   : "no answer for discovery.kubernetes.timeout");
	end_call(call, call->open ? KVW_KUBE_IDLE : KVW_KUBE_TIMEOUT, 0);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_kube_call *call = arg;

	(void)fd;
	(void)what;
	end_call(call, call->fault, 0);
}

/* --- the beginning --- */

static bool add_header(struct kvw_kube_call *call, const char *name, const char *value)
{
	struct curl_slist *list;
	char *line;

	if (asprintf(&line, "%s: %s", name, value) < 0)
		return false;
	list = curl_slist_append(call->headers, line);
	free(line);
	if (list != NULL)
		call->headers = list;
	return list != NULL;
}

static enum kvw_kube_fault set_headers(struct kvw_kube_call *call)
{
	const char *path = call->config->discovery_kube_token_file;
	char *token, *bearer;
	bool ok = add_header(call, "Accept", "application/json") &&
		  add_header(call, "User-Agent", "kvway/" KVW_VERSION);
	enum kvw_err err;

	if (ok && call->patch != NULL)
		ok = add_header(call, "Content-Type", "application/merge-patch+json");
	if (!ok || path[0] == '\0')
		return ok ? KVW_KUBE_NONE : KVW_KUBE_LOCAL;
	err = kvw_kube_read_word(path, &token, call->why, sizeof(call->why));
	if (err != KVW_OK)
		return err == KVW_ENOMEM ? KVW_KUBE_LOCAL : KVW_KUBE_DENIED;
	ok = asprintf(&bearer, "Bearer %s", token) >= 0;
	if (ok) {
		ok = add_header(call, "Authorization", bearer);
		free(bearer);
	}
	free(token);
	return ok ? KVW_KUBE_NONE : KVW_KUBE_LOCAL;
}

static enum kvw_kube_fault set_authorities(struct kvw_kube_call *call)
{
	const char *path = call->config->discovery_kube_ca_file;

	if (path[0] == '\0' || strncasecmp(call->config->discovery_kube_api, "https:", 6) != 0)
		return KVW_KUBE_NONE;
	switch (kvw_kube_trust(call->easy, path, call->why, sizeof(call->why))) {
	case KVW_OK:
		return KVW_KUBE_NONE;
	case KVW_EIO:
		return KVW_KUBE_TLS;
	default:
		return KVW_KUBE_LOCAL;
	}
}

static bool set_patch(struct kvw_kube_call *call)
{
	return call->patch == NULL ||
	       (curl_easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, call->patch) == CURLE_OK &&
		       curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, "PATCH") == CURLE_OK);
}

static bool set_options(struct kvw_kube_call *call, const char *url)
{
	long timeout_ms = (long)call->config->discovery_kube_timeout_ms;
	CURL *easy = call->easy;

	return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PRIVATE, call) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
	       kvw_curl_leave_dns_behind(easy) && set_patch(call) &&
	       curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, call->watch ? 0L : timeout_ms) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEDATA, call) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HEADERDATA, call) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) == CURLE_OK;
}

static enum kvw_kube_fault prepare_call(struct kvw_kube_call *call, const char *path)
{
	enum kvw_kube_fault fault = set_headers(call);
	char *url;
	bool ok;

	if (fault != KVW_KUBE_NONE)
		return fault;
	call->easy = curl_easy_init();
	if (call->easy == NULL ||
		asprintf(&url, "%s%s", call->config->discovery_kube_api, path) < 0)
		return KVW_KUBE_LOCAL;
	ok = set_options(call, url);
	free(url);
	fault = ok ? set_authorities(call) : KVW_KUBE_LOCAL;
	if (fault == KVW_KUBE_NONE && kvw_curl_loop_start(call->loop, call->easy) != KVW_OK)
		fault = KVW_KUBE_LOCAL;
	return fault;
}

void kvw_kube_call_start(struct kvw_kube_call *call, const char *path, bool watch)
{
	const struct timeval at_once = {0};

	kvw_kube_call_stop(call);
	call->watch = watch;
	call->open = false;
	call->why[0] = call->error[0] = '\0';
	call->fault = prepare_call(call, path);
	if (call->fault == KVW_KUBE_NONE) {
		if (watch)
			set_silence(call);
		return;
	}
	if (call->why[0] == '\0')
		snprintf(call->why, sizeof(call->why), "out of memory");
	if (call->easy != NULL)
		curl_easy_cleanup(call->easy);
	call->easy = NULL;
	event_add(call->later, &at_once);
}

void kvw_kube_call_patch(struct kvw_kube_call *call, const char *path, const char *patch)
{
	call->patch = patch;
	kvw_kube_call_start(call, path, false);
	call->patch = NULL;
}

bool kvw_kube_call_runs(const struct kvw_kube_call *call)
{
	return call->easy != NULL || event_pending(call->later, EV_TIMEOUT, NULL);
}

void kvw_kube_call_stop(struct kvw_kube_call *call)
{
	if (call->easy != NULL)
		kvw_curl_loop_abort(call->loop, call->easy);
	put_away(call);
	free(call->body);
	call->body = NULL;
	call->len = call->room = 0;
}

enum kvw_err kvw_kube_call_create(struct kvw_curl_loop *loop, const struct kvw_config *config,
	const struct kvw_kube_call_ops *ops, void *arg, struct kvw_kube_call **out)
{
	struct kvw_kube_call *call = calloc(1, sizeof(*call));

	if (call == NULL)
		return KVW_ENOMEM;
	call->loop = loop;
	call->config = config;
	call->ops = ops;
	call->arg = arg;
	call->fault = KVW_KUBE_NONE;
	call->silence = event_new(loop->base, -1, 0, on_silence, call);
	call->later = event_new(loop->base, -1, 0, on_later, call);
	if (call->silence == NULL || call->later == NULL) {
		kvw_kube_call_destroy(call);
		return KVW_ENOMEM;
	}
	*out = call;
	return KVW_OK;
}

void kvw_kube_call_destroy(struct kvw_kube_call *call)
{
	if (call == NULL)
		return;
	if (call->silence != NULL && call->later != NULL)
		kvw_kube_call_stop(call);
	if (call->silence != NULL)
		event_free(call->silence);
	if (call->later != NULL)
		event_free(call->later);
	free(call);
}
