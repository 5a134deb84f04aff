/* fetch.c - one GET, waited for: what a run asks before it begins. */
#include "bench/load/fetch.h"

#include <event2/event.h>
#include <stdlib.h>

static void on_head(void *arg, int status)
{
	((struct kvb_fetched *)arg)->status = status;
}

static void on_body(void *arg, const char *data, size_t len)
{
	kvb_buf_add(&((struct kvb_fetched *)arg)->text, data, len);
}

static void on_end(void *arg, enum kvb_http_end how, int error)
{
	struct kvb_fetched *fetched = arg;

	fetched->how = how;
	fetched->error = error;
	event_base_loopbreak(fetched->base);
}

void kvb_fetch(
	struct event_base *base, struct kvb_http *http, const char *path, struct kvb_fetched *out)
{
	static const struct kvb_http_handler get = {
		.head = on_head, .body = on_body, .end = on_end};
	const char *key = getenv("OPENAI_API_KEY");
	struct kvb_buf headers = {0}, nothing = {0};

	*out = (struct kvb_fetched){.base = base};
	if (key != NULL && key[0] != '\0')
		kvb_buf_printf(&headers, "Authorization: Bearer %s\r\n", key);
	kvb_http_send(http, "GET", path, kvb_buf_str(&headers), &nothing, &get, out);
	kvb_buf_finish(&headers);
	event_base_dispatch(base);
}
