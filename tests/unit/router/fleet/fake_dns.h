/*
 * fake_dns.h - a name server on loopback, by UDP and TCP, in the event loop of the test.
 *
 * It knows what it was given: a name with records answers with those of the type asked, or with none
 * (NODATA); a name without any does not exist (NXDOMAIN). A rule makes it answer otherwise.
 */
#ifndef TESTS_FAKE_DNS_H
#define TESTS_FAKE_DNS_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_DNS_A    1
#define FAKE_DNS_AAAA 28
#define FAKE_DNS_SRV  33
#define FAKE_DNS_ANY  0 /* of a rule: all types */

struct event_base;
struct fake_dns;

enum fake_dns_rule {
	FAKE_DNS_ANSWER,
	FAKE_DNS_SERVFAIL,
	FAKE_DNS_SILENT,
	FAKE_DNS_GARBAGE,   /* a head that fits, then noise */
	FAKE_DNS_TRUNCATED, /* by UDP; whole by TCP */
};

struct fake_dns *fake_dns_create(struct event_base *base);
void fake_dns_destroy(struct fake_dns *fake);

/* "127.0.0.1:PORT" */
const char *fake_dns_servers(const struct fake_dns *fake);

/* text: an address; for SRV "PORT TARGET". */
void fake_dns_add(
	struct fake_dns *fake, const char *name, uint16_t type, uint32_t ttl_s, const char *text);
void fake_dns_clear(struct fake_dns *fake); /* no record, no rule */
void fake_dns_rule(struct fake_dns *fake, const char *name, uint16_t type, enum fake_dns_rule rule);

/* Questions heard for a name and type (FAKE_DNS_ANY: all), NULL: for any name; by TCP alone. */
size_t fake_dns_asked(const struct fake_dns *fake, const char *name, uint16_t type);
size_t fake_dns_asked_tcp(const struct fake_dns *fake);

#endif
