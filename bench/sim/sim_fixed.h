/*
 * sim_fixed.h - answers that cost almost nothing, for measurements of a proxy in front.
 *
 * --fixed-response: one write of prepared bytes. --fixed-stream: events at a fixed rate, each
 * stamped with the sender's clock, so that a receiver on the same machine can compute how late it
 * came. All streams of a worker have the same interval, so a queue in the order of the next event
 * replaces a timer heap.
 */
#ifndef KVB_SIM_FIXED_H
#define KVB_SIM_FIXED_H

struct event_base;
struct kvb_conn;
struct kvb_fixed;
struct kvb_http;
struct kvb_options;

struct kvb_fixed *kvb_fixed_create(struct event_base *base, const struct kvb_options *options);
void kvb_fixed_destroy(struct kvb_fixed *fixed);
void kvb_fixed_request(struct kvb_fixed *fixed, struct kvb_http *http, struct kvb_conn *conn);
/* The connection that carried this stream has ended. */
void kvb_fixed_gone(struct kvb_fixed *fixed, void *stream);

#endif
