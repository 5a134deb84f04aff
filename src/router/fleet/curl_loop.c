/*
 * curl_loop.c - runs libcurl's transfers on an event base.
 *
 * libcurl calls back from inside its own functions; those callbacks only touch events.
 * read_results() takes ended transfers out, after libcurl has returned.
 */
#include "fleet/curl_loop.h"

#include <event2/event.h>

#include "base/log.h"

static void read_results(struct kvw_curl_loop *loop)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(loop->multi, &left)) != NULL) {
		CURLcode code = message->data.result;
		CURL *easy = message->easy_handle;
		char *user = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
		curl_multi_remove_handle(loop->multi, easy);
		loop->done(user, code);
	}
}

static void on_socket_event(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_curl_loop *loop = arg;
	int mask =
		(what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
	int running;

	curl_multi_socket_action(loop->multi, (curl_socket_t)fd, mask, &running);
	read_results(loop);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct kvw_curl_loop *loop = arg;
	struct event *event = socket_arg;
	short wanted = EV_PERSIST;

	(void)easy;
	if (event != NULL)
		event_free(event);
	event = NULL;
	if (what != CURL_POLL_REMOVE) {
		if (what & CURL_POLL_IN)
			wanted |= EV_READ;
		if (what & CURL_POLL_OUT)
			wanted |= EV_WRITE;
		event = event_new(loop->base, fd, wanted, on_socket_event, loop);
		if (event == NULL || event_add(event, NULL) != 0)
			kvw_warn("curl", "out of memory for a socket event");
	}
	curl_multi_assign(loop->multi, fd, event);
	return 0;
}

static int on_curl_timer(CURLM *multi, long ms, void *arg)
{
	struct timeval delay = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	struct kvw_curl_loop *loop = arg;

	(void)multi;
	if (ms < 0)
		event_del(loop->timeout);
	else
		event_add(loop->timeout, &delay);
	return 0;
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct kvw_curl_loop *loop = arg;
	int running;

	(void)fd;
	(void)what;
	curl_multi_socket_action(loop->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	read_results(loop);
}

enum kvw_err kvw_curl_loop_init(
	struct kvw_curl_loop *loop, struct event_base *base, kvw_curl_done_fn *done)
{
	*loop = (struct kvw_curl_loop){.base = base, .done = done};
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return KVW_ENOMEM;
	loop->curl_ready = true;
	loop->multi = curl_multi_init();
	loop->timeout = event_new(base, -1, 0, on_timeout, loop);
	if (loop->multi == NULL || loop->timeout == NULL)
		return KVW_ENOMEM;
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
	return KVW_OK;
}

void kvw_curl_loop_finish(struct kvw_curl_loop *loop)
{
	if (loop->multi != NULL)
		curl_multi_cleanup(loop->multi);
	if (loop->timeout != NULL)
		event_free(loop->timeout);
	if (loop->curl_ready)
		curl_global_cleanup();
	*loop = (struct kvw_curl_loop){0};
}

enum kvw_err kvw_curl_loop_start(struct kvw_curl_loop *loop, CURL *easy)
{
	return curl_multi_add_handle(loop->multi, easy) == CURLM_OK ? KVW_OK : KVW_ENOMEM;
}

void kvw_curl_loop_abort(struct kvw_curl_loop *loop, CURL *easy)
{
	curl_multi_remove_handle(loop->multi, easy);
}

bool kvw_curl_leave_dns_behind(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075700
	return curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK;
#else
	(void)easy;
	return true;
#endif
}
