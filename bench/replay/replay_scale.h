/*
 * replay_scale.h - a fleet whose size an autoscaler changes while the replay runs.
 *
 * A worker that is asked for serves after `start_ns` (a pod, an image, weights). A worker that is
 * given up gets no new requests, and is gone, with its cache, when its last request has ended. Both
 * cost as much as a worker that serves.
 *
 * The autoscaler is Kubernetes' HorizontalPodAutoscaler, which is also what KEDA makes: it looks
 * every 15 s at the value that was so a period ago (a scrape), does nothing within 10 % of the
 * target, and changes the number as its behavior allows. Source:
 * https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
 */
#ifndef KVB_REPLAY_SCALE_H
#define KVB_REPLAY_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvb_fleet;
struct kvb_scaler;

enum kvb_worker_state {
	KVB_SERVES,
	KVB_ABSENT,
	KVB_COMING,  /* it does not serve yet */
	KVB_LEAVING, /* it answers the requests that it has */
};

struct kvb_scale_signal {
	const char *name;
	/* The target is for each worker: the number of workers is value / target. Otherwise the
	 * value is a mean or a ratio, and the number of those that serve is multiplied by
	 * value / target. */
	bool each;
	double (*value)(const struct kvb_scaler *scaler, int64_t now_ns);
	const char *what;
};

/* All signals, ended by one whose name is NULL. */
extern const struct kvb_scale_signal kvb_scale_signals[];
const struct kvb_scale_signal *kvb_scale_signal_find(const char *name);

/* How fast the number of workers changes in one direction: what the signal asks for counts when it
 * has asked for no less all through the window; within a period it changes by `workers`, or by a
 * share of the number at its beginning, whichever is more. */
struct kvb_scale_way {
	int64_t window_ns, period_ns;
	uint32_t workers;
	double share;
};

/* As `behavior` of a HorizontalPodAutoscaler. */
struct kvb_scale_behavior {
	const char *name;
	struct kvb_scale_way up, down;
};

/* All behaviors, ended by one whose name is NULL; the first is Kubernetes' default. */
extern const struct kvb_scale_behavior kvb_scale_behaviors[];
const struct kvb_scale_behavior *kvb_scale_behavior_find(const char *name);

/* signal NULL: the number of workers is fixed. */
struct kvb_scale_options {
	const struct kvb_scale_signal *signal;
	double target;
	uint32_t least; /* workers, also at the beginning; the most are the fleet's */
	int64_t start_ns, period_ns;
	const struct kvb_scale_behavior *behavior;
};

/* fleet: its workers beyond `least` become absent. gate: the state of admission kvway. Borrows
 * both. until_ns: workers cost nothing after this. */
struct kvb_scaler *kvb_scaler_create(struct kvb_fleet *fleet, void *gate, int64_t until_ns);
void kvb_scaler_destroy(struct kvb_scaler *scaler); /* NULL is allowed */
/* Returns when kvb_scaler_turn has something to do next. */
int64_t kvb_scaler_next_ns(const struct kvb_scaler *scaler);
void kvb_scaler_turn(struct kvb_scaler *scaler, int64_t now_ns);
/* Returns what workers have cost so far, in ns of one, and sets the highest number that was there. */
double kvb_scaler_worker_ns(const struct kvb_scaler *scaler, uint32_t *most);

#endif
