/*
 * prom.h - a strict reader of Prometheus text 0.0.4, for tests.
 *
 * Written from the format's description, not from our writer: names and label names must be legal,
 * HELP and TYPE come once and before the samples, samples of one metric stand together, no label set
 * occurs twice, histograms have ascending buckets that end in +Inf and agree with their count.
 */
#ifndef KVW_TEST_PROM_H
#define KVW_TEST_PROM_H

#include <stdbool.h>
#include <stddef.h>

struct prom;

/* Fails the running test with the offending line. */
struct prom *prom_parse(const char *text, size_t len);
void prom_free(struct prom *prom);

/* Value of the sample written `series`, for example a_total{x="1"} with labels in the order of the
 * text. *found false and 0 if there is none. */
double prom_value(const struct prom *prom, const char *series, bool *found);
/* Fails the test if there is none. */
double prom_get(const struct prom *prom, const char *series);
/* How many series a family has; type may be NULL. Fails if it has another type. */
size_t prom_family(const struct prom *prom, const char *name, const char *type);

#endif
