/*
 * delivery.c - see delivery.h.
 *
 * libcurl's multi interface, polled by the exporter's thread: so the thread goes on to empty the
 * loops' outboxes while a collector is slow. The connection is kept from message to message.
 */
#include "otel/delivery.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"

#define ANSWER_MOST      4096       /* bytes of an answer that are read */
#define ANSWER_ENDLESS   (1u << 20) /* after so many bytes the answer is broken off */
#define RETRY_AFTER_MOST 60         /* seconds */
#define GZIP             (15 + 16)  /* zlib: largest window, with gzip's head */

struct kvw_delivery {
	const struct kvw_otel_settings *settings;
	const struct kvw_otlp *format;
	CURLM *multi;
	CURL *easy;
	struct curl_slist *fields;
	bool global, runs;
	struct kvw_page body; /* of the message under way */
	char instance[80];
	char answer[ANSWER_MOST];
	size_t answer_len, answer_seen;
	char error[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct kvw_delivery *delivery = arg;
	size_t n = size * count, room = ANSWER_MOST - delivery->answer_len;

	delivery->answer_seen += n;
	if (room > 0)
		memcpy(delivery->answer + delivery->answer_len, data, n < room ? n : room);
	delivery->answer_len += n < room ? n : room;
	return delivery->answer_seen > ANSWER_ENDLESS ? 0 : n;
}

static bool add_field(struct kvw_delivery *delivery, const char *line)
{
	struct curl_slist *list = curl_slist_append(delivery->fields, line);

	if (list != NULL)
		delivery->fields = list;
	return list != NULL;
}

static bool add_fields(struct kvw_delivery *delivery)
{
	const struct kvw_otel_settings *settings = delivery->settings;
	bool ok = add_field(delivery, delivery->format->content_type) &&
		  add_field(delivery, "Expect:");

	if (settings->compression == KVW_OTLP_GZIP)
		ok = ok && add_field(delivery, "Content-Encoding: gzip");
	for (size_t i = 0; ok && i < settings->header_count; i++) {
		const struct kvw_otel_pair *pair = &settings->headers[i];
		char *line = NULL;

		ok = asprintf(&line, "%s: %s", pair->name, pair->value) >= 0 &&
		     add_field(delivery, line);
		free(line);
	}
	return ok;
}

static bool set_options(struct kvw_delivery *delivery)
{
	const struct kvw_otel_settings *settings = delivery->settings;
	CURL *easy = delivery->easy;

	return add_fields(delivery) &&
	       curl_easy_setopt(easy, CURLOPT_URL, settings->endpoint) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_HTTPHEADER, delivery->fields) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) ==
		       CURLE_OK &&
	       (settings->ca_file == NULL ||
		       (curl_easy_setopt(easy, CURLOPT_CAINFO, settings->ca_file) == CURLE_OK &&
			       curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK)) &&
	       curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_USERAGENT, "kvway/" KVW_VERSION) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)settings->timeout_ms) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, delivery->error) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
	       curl_easy_setopt(easy, CURLOPT_WRITEDATA, delivery) == CURLE_OK;
}

enum kvw_err kvw_delivery_create(
	const struct kvw_otel_settings *settings, struct kvw_delivery **out)
{
	struct kvw_delivery *delivery = calloc(1, sizeof(*delivery));
	char host[64] = "";

	if (delivery == NULL)
		return KVW_ENOMEM;
	delivery->settings = settings;
	delivery->format =
		settings->protocol == KVW_OTLP_JSON ? &kvw_otlp_json : &kvw_otlp_protobuf;
	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(
		delivery->instance, sizeof(delivery->instance), "%s-%ld", host, (long)getpid());
	delivery->global = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	if (delivery->global) {
		delivery->multi = curl_multi_init();
		delivery->easy = curl_easy_init();
	}
	if (delivery->multi == NULL || delivery->easy == NULL || !set_options(delivery)) {
		kvw_delivery_destroy(delivery);
		return KVW_ENOMEM;
	}
	*out = delivery;
	return KVW_OK;
}

void kvw_delivery_destroy(struct kvw_delivery *delivery)
{
	if (delivery == NULL)
		return;
	if (delivery->runs)
		curl_multi_remove_handle(delivery->multi, delivery->easy);
	if (delivery->easy != NULL)
		curl_easy_cleanup(delivery->easy);
	if (delivery->multi != NULL)
		curl_multi_cleanup(delivery->multi);
	curl_slist_free_all(delivery->fields);
	if (delivery->global)
		curl_global_cleanup();
	free(delivery->body.data);
	free(delivery);
}

const struct kvw_otlp *kvw_delivery_format(const struct kvw_delivery *delivery)
{
	return delivery->format;
}

bool kvw_delivery_runs(const struct kvw_delivery *delivery)
{
	return delivery->runs;
}

/* Replaces a text by its gzip. */
static enum kvw_err compress_page(struct kvw_page *page)
{
	z_stream stream = {.next_in = (Bytef *)page->data, .avail_in = (uInt)page->len};
	struct kvw_page packed = {0};
	int code;

	if (deflateInit2(&stream, 1, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return KVW_ENOMEM;
	packed.capacity = deflateBound(&stream, (uLong)page->len);
	packed.data = malloc(packed.capacity);
	stream.next_out = (Bytef *)packed.data;
	stream.avail_out = (uInt)packed.capacity;
	code = packed.data == NULL ? Z_MEM_ERROR : deflate(&stream, Z_FINISH);
	packed.len = stream.total_out;
	deflateEnd(&stream);
	if (code != Z_STREAM_END) {
		free(packed.data);
		return KVW_ENOMEM;
	}
	free(page->data);
	*page = packed;
	return KVW_OK;
}

/* Writes the message around a batch. */
static enum kvw_err make_body(struct kvw_delivery *delivery, const struct kvw_page *batch)
{
	const struct kvw_otlp_sender sender = {delivery->settings, delivery->instance};
	enum kvw_err err;

	delivery->body.len = 0;
	delivery->body.failed = false;
	delivery->format->request(&delivery->body, &sender, batch);
	err = delivery->body.failed ? KVW_ENOMEM : KVW_OK;
	if (err == KVW_OK && delivery->settings->compression == KVW_OTLP_GZIP)
		err = compress_page(&delivery->body);
	return err;
}

enum kvw_err kvw_delivery_start(struct kvw_delivery *delivery, const struct kvw_page *batch)
{
	CURL *easy = delivery->easy;
	enum kvw_err err = make_body(delivery, batch);

	if (err != KVW_OK)
		return err;
	delivery->answer_len = delivery->answer_seen = 0;
	delivery->error[0] = '\0';
	if (curl_easy_setopt(easy, CURLOPT_POSTFIELDS, delivery->body.data) != CURLE_OK ||
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
			(curl_off_t)delivery->body.len) != CURLE_OK ||
		curl_multi_add_handle(delivery->multi, easy) != CURLM_OK)
		return KVW_ENOMEM;
	delivery->runs = true;
	return KVW_OK;
}

/* Returns what an HTTP status means for the message. */
static enum kvw_delivered judge(long status)
{
	if (status >= 200 && status < 300)
		return KVW_DELIVERY_OK;
	return status == 429 || status == 502 || status == 503 || status == 504
		       ? KVW_DELIVERY_AGAIN
		       : KVW_DELIVERY_REFUSED;
}

static enum kvw_delivered take_result(
	struct kvw_delivery *delivery, CURLcode code, struct kvw_delivery_result *result)
{
	enum kvw_delivered how;
	curl_off_t after = 0;
	long status = 0;

	*result = (struct kvw_delivery_result){.rejected = 0};
	(void)curl_easy_getinfo(delivery->easy, CURLINFO_RESPONSE_CODE, &status);
	/* A body that was broken off changes nothing: the status was there. */
	if (code != CURLE_OK && code != CURLE_WRITE_ERROR) {
		(void)snprintf(result->why, sizeof(result->why), "%s",
			delivery->error[0] != '\0' ? delivery->error : curl_easy_strerror(code));
		return KVW_DELIVERY_AGAIN;
	}
	how = judge(status);
	if (how == KVW_DELIVERY_OK) {
		result->rejected =
			delivery->format->rejected(delivery->answer, delivery->answer_len);
		return how;
	}
	(void)snprintf(result->why, sizeof(result->why), "status %ld", status);
	if (curl_easy_getinfo(delivery->easy, CURLINFO_RETRY_AFTER, &after) == CURLE_OK)
		result->retry_after_ns =
			(int64_t)(after < RETRY_AFTER_MOST ? after : RETRY_AFTER_MOST) *
			KVW_NS_PER_S;
	return how;
}

enum kvw_delivered kvw_delivery_wait(
	struct kvw_delivery *delivery, int ms, struct kvw_delivery_result *result)
{
	CURLMsg *message;
	int running, left;

	(void)curl_multi_poll(delivery->multi, NULL, 0, ms, NULL);
	if (!delivery->runs)
		return KVW_DELIVERY_NOTHING;
	(void)curl_multi_perform(delivery->multi, &running);
	while ((message = curl_multi_info_read(delivery->multi, &left)) != NULL) {
		CURLcode code = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_multi_remove_handle(delivery->multi, delivery->easy);
		delivery->runs = false;
		return take_result(delivery, code, result);
	}
	return KVW_DELIVERY_NOTHING;
}

void kvw_delivery_wake(struct kvw_delivery *delivery)
{
	(void)curl_multi_wakeup(delivery->multi);
}
