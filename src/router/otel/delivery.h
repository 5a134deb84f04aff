/*
 * delivery.h - sends one message after another to the collector by HTTP, without waiting for any.
 *
 * Status codes and Retry-After have the meaning that OTLP gives them:
 * https://opentelemetry.io/docs/specs/otlp/#otlphttp-response. Redirects are not followed, and of
 * an answer only its first 4 KiB are read.
 *
 * Threads: one thread; kvw_delivery_wake works in any.
 */
#ifndef KVW_OTEL_DELIVERY_H
#define KVW_OTEL_DELIVERY_H

#include "otel/otlp.h"

struct kvw_delivery;

enum kvw_delivered {
	KVW_DELIVERY_NOTHING, /* no message has ended */
	KVW_DELIVERY_OK,
	KVW_DELIVERY_AGAIN, /* it may be sent again */
	KVW_DELIVERY_REFUSED,
};

struct kvw_delivery_result {
	uint64_t rejected; /* spans that the collector has not taken, of a message that it took */
	int64_t retry_after_ns; /* how long it asks to wait; 0: it does not say */
	char why[256];          /* of a message that it did not take */
};

/* settings is borrowed. KVW_ENOMEM. */
enum kvw_err kvw_delivery_create(
	const struct kvw_otel_settings *settings, struct kvw_delivery **out) KVW_MUST_CHECK;
void kvw_delivery_destroy(struct kvw_delivery *delivery); /* NULL is allowed */

/* The encoding of the messages. */
const struct kvw_otlp *kvw_delivery_format(const struct kvw_delivery *delivery);
bool kvw_delivery_runs(const struct kvw_delivery *delivery);
/* Begins to send the spans of a batch, which may be freed afterwards. No message may be under way.
 * KVW_ENOMEM. */
enum kvw_err kvw_delivery_start(
	struct kvw_delivery *delivery, const struct kvw_page *batch) KVW_MUST_CHECK;
/* Waits until the message has ended, or kvw_delivery_wake was called, or `ms` have passed. *result
 * is set if the message has ended. */
enum kvw_delivered kvw_delivery_wait(
	struct kvw_delivery *delivery, int ms, struct kvw_delivery_result *result);
void kvw_delivery_wake(struct kvw_delivery *delivery);

#endif
