/*
 * calls.c - see calls.h.
 *
 * libcurl names the sockets that it waits for; they are in an epoll set, whose descriptor the feed
 * watches. Its timer is looked at ten times a second, when the feed ticks: only time limits and the
 * resolving of names depend on it.
 */
#include "feeds/coordinator/calls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/chars.h"

#define TIMEOUT_MS  30000L /* as LMCache's coordinator has it */
#define CONNECT_MS  5000L
#define ANSWER_MOST ((size_t)1 << 20)

struct kvw_call {
	LIST_ENTRY(kvw_call) entry;
	CURL *easy;
	struct curl_slist *fields;
	char *body;             /* owned; NULL: none */
	struct kvw_page answer; /* owned */
	kvw_call_done_fn *done;
	void *ctx;
	char error[CURL_ERROR_SIZE];
};

static void free_call(struct kvw_call *call)
{
	if (call->easy != NULL)
		curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->fields);
	free(call->body);
	free(call->answer.data);
	free(call);
}

/* --- libcurl's callbacks ---------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
	struct kvw_calls *calls = ctx;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	(void)known;
	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(calls->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		event.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		event.events |= EPOLLOUT;
	if (epoll_ctl(calls->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0 &&
		epoll_ctl(calls->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return -1;
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *ctx)
{
	struct kvw_calls *calls = ctx;

	(void)multi;
	calls->due_ns =
		timeout_ms < 0 ? INT64_MAX : kvw_clock_ns() + (int64_t)timeout_ms * KVW_NS_PER_MS;
	return 0;
}

static size_t on_answer(char *data, size_t size, size_t count, void *ctx)
{
	struct kvw_call *call = ctx;
	size_t len = size * count;

	if (len > ANSWER_MOST - call->answer.len)
		return 0;
	kvw_page_put(&call->answer, data, len);
	return call->answer.failed ? 0 : len;
}

/* --- progress --------------------------------------------------------------------------------- */

static void end_call(struct kvw_calls *calls, struct kvw_call *call, CURLcode code)
{
	struct kvw_slice answer = {
		call->answer.data == NULL ? "" : call->answer.data, call->answer.len};
	long status = 0;

	(void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code != CURLE_OK) {
		status = 0;
		answer = kvw_slice_of(
			call->error[0] != '\0' ? call->error : curl_easy_strerror(code));
	}
	(void)curl_multi_remove_handle(calls->multi, call->easy);
	LIST_REMOVE(call, entry);
	calls->count--;
	call->done(call->ctx, status, answer);
	free_call(call);
}

static void end_calls(struct kvw_calls *calls)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(calls->multi, &left)) != NULL) {
		CURLcode code = message->data.result;
		char *call = NULL;

		if (message->msg == CURLMSG_DONE && curl_easy_getinfo(message->easy_handle,
							    CURLINFO_PRIVATE, &call) == CURLE_OK)
			end_call(calls, (struct kvw_call *)(void *)call, code);
	}
}

static void act(struct kvw_calls *calls, curl_socket_t fd, int what)
{
	int running;

	(void)curl_multi_socket_action(calls->multi, fd, what, &running);
}

static bool on_epoll(void *handle, void *ctx)
{
	struct kvw_calls *calls = ctx;
	struct epoll_event events[16];
	int count = epoll_wait(calls->epoll_fd, events, 16, 0);

	(void)handle;
	for (int i = 0; i < count; i++)
		act(calls, events[i].data.fd,
			(events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
				(events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
				(events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0));
	end_calls(calls);
	return count == 16;
}

void kvw_calls_turn(struct kvw_calls *calls)
{
	if (calls->count == 0)
		return;
	if (kvw_clock_ns() >= calls->due_ns) {
		calls->due_ns = INT64_MAX;
		act(calls, CURL_SOCKET_TIMEOUT, 0);
	}
	end_calls(calls);
}

/* --- a call ----------------------------------------------------------------------------------- */

/* The server's URL with a path, to be freed; NULL: no memory, or (*bad) no address. */
static char *make_url(const struct kvw_cd_instance *server, const char *path, bool *bad)
{
	bool v6 = strchr(server->ip, ':') != NULL;
	char *url;

	*bad = false;
	for (const char *at = server->ip; *at != '\0'; at++)
		*bad |= !kvw_char_is(*at, KVW_CHAR_HEX) && strchr(v6 ? ":." : ".-_", *at) == NULL &&
			(v6 || ((*at | 32) < 'a' || (*at | 32) > 'z'));
	if (*bad || asprintf(&url, "http://%s%s%s:%u%s", v6 ? "[" : "", server->ip, v6 ? "]" : "",
			    server->http_port, path) < 0)
		return NULL;
	return url;
}

static bool set_up(struct kvw_call *call, const struct kvw_call_options *options, const char *url,
	size_t body_len)
{
	CURL *easy = call->easy;
	bool ok = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http") == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, options->method) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_answer) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_WRITEDATA, call) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) == CURLE_OK &&
		  curl_easy_setopt(easy, CURLOPT_PRIVATE, call) == CURLE_OK;

	if (!ok || call->body == NULL)
		return ok;
	call->fields = curl_slist_append(NULL, "Content-Type: application/json");
	return call->fields != NULL &&
	       curl_slist_append(call->fields, "Expect:") != NULL && /* no wait for a 100 */
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_len) ==
		       CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->fields) == CURLE_OK;
}

enum kvw_err kvw_calls_start(struct kvw_calls *calls, const struct kvw_call_options *options)
{
	struct kvw_call *call = calloc(1, sizeof(*call));
	bool bad = false, failed = call == NULL || !calls->opened;
	size_t body_len = 0;
	char *url = NULL;

	if (options->body != NULL) {
		body_len = options->body->len;
		failed |= options->body->failed;
		if (call != NULL)
			call->body = options->body->data;
		else
			free(options->body->data);
		*options->body = (struct kvw_page){0};
	}
	if (!failed && calls->count < KVW_CALLS_MOST) {
		call->done = options->done;
		call->ctx = options->ctx;
		call->easy = curl_easy_init();
		url = make_url(options->server, options->path, &bad);
	}
	failed |= url == NULL || call->easy == NULL || !set_up(call, options, url, body_len) ||
		  curl_multi_add_handle(calls->multi, call->easy) != CURLM_OK;
	free(url);
	if (failed) {
		if (call != NULL)
			free_call(call);
		return bad ? KVW_EINVAL : calls->count >= KVW_CALLS_MOST ? KVW_ELIMIT : KVW_ENOMEM;
	}
	LIST_INSERT_HEAD(&calls->running, call, entry);
	calls->count++;
	act(calls, CURL_SOCKET_TIMEOUT,
		0); /* begins to connect; its end is found in a later turn */
	return KVW_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

enum kvw_err kvw_calls_open(struct kvw_calls *calls, struct kvw_feed *feed)
{
	/* libcurl counts the calls: other parts of kvway make their own. */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return KVW_ENOMEM;
	calls->opened = true;
	calls->feed = feed;
	calls->due_ns = INT64_MAX;
	LIST_INIT(&calls->running);
	calls->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	calls->multi = curl_multi_init();
	if (calls->epoll_fd < 0 || calls->multi == NULL ||
		curl_multi_setopt(calls->multi, CURLMOPT_SOCKETFUNCTION, on_socket) != CURLM_OK ||
		curl_multi_setopt(calls->multi, CURLMOPT_SOCKETDATA, calls) != CURLM_OK ||
		curl_multi_setopt(calls->multi, CURLMOPT_TIMERFUNCTION, on_timer) != CURLM_OK ||
		curl_multi_setopt(calls->multi, CURLMOPT_TIMERDATA, calls) != CURLM_OK)
		return KVW_ENOMEM;
	return kvw_feed_watch_fd(feed, calls->epoll_fd, calls, on_epoll, calls);
}

void kvw_calls_close(struct kvw_calls *calls)
{
	if (!calls->opened)
		return;
	calls->opened = false; /* `done` starts no other */
	kvw_feed_unwatch(calls->feed, calls);
	while (!LIST_EMPTY(&calls->running))
		end_call(calls, LIST_FIRST(&calls->running), CURLE_ABORTED_BY_CALLBACK);
	if (calls->multi != NULL)
		curl_multi_cleanup(calls->multi);
	if (calls->epoll_fd >= 0)
		close(calls->epoll_fd);
	curl_global_cleanup();
}
