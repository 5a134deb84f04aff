/* sessions_test.c - sessions that are resumed, and those that must not be. */
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "support.h"
#include "tests/unit/suite.h"
#include "tls/tls_internal.h"

#define HOUR_NS (3600 * KVW_NS_PER_S)

static struct files files, newer;
static struct kvw_tls *server, *client;
static SSL_SESSION *session; /* the last one that the client got */
static bool lenient; /* the server does not look at the time in a new handshake */
static char why[256];

static struct kvw_tls *make_server(const char *client_ca)
{
	const struct kvw_tls_server_options options = {.certificate = files.cert,
		.key = files.key,
		.client_ca = client_ca,
		.client_asked = true};
	struct kvw_tls *tls = NULL;

	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_OK);
	return tls;
}

static void set_up(void)
{
	const struct kvw_tls_client_options options = {.insecure = true};

	files_make(&files);
	files_make(&newer);
	server = make_server(NULL);
	ck_assert_int_eq(kvw_tls_client_create(&options, why, sizeof(why), &client), KVW_OK);
	session = NULL;
	lenient = false;
}

static void tear_down(void)
{
	SSL_SESSION_free(session);
	kvw_tls_destroy(server);
	kvw_tls_destroy(client);
	files_remove(&files);
	files_remove(&newer);
}

/* A connection that offers the last session. Returns whether it was resumed. */
static bool resumes(int version)
{
	struct kvw_tls_conn *conn;
	struct link link;
	bool resumed;

	link_open(&link, 4096);
	ck_assert_int_eq(kvw_tls_client_start(&link.a.io, client, "localhost"), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&link.b.io, server), KVW_OK);
	conn = link.a.io.state;
	ck_assert_int_eq(SSL_set_max_proto_version(conn->ssl, version), 1);
	if (lenient) {
		struct kvw_tls_conn *of_server = link.b.io.state;

		X509_VERIFY_PARAM_set_flags(SSL_get0_param(of_server->ssl), X509_V_FLAG_NO_CHECK_TIME);
	}
	if (session != NULL)
		ck_assert_int_eq(SSL_set_session(conn->ssl, session), 1);
	link_settle(&link);
	ck_assert_msg(kvw_tls_ready(&link.a.io), "client: %s", kvw_tls_why(&link.a.io));
	ck_assert_msg(kvw_tls_ready(&link.b.io), "server: %s", kvw_tls_why(&link.b.io));
	resumed = kvw_tls_resumed(&link.b.io);
	ck_assert(resumed == kvw_tls_resumed(&link.a.io));
	SSL_SESSION_free(session);
	session = SSL_get1_session(conn->ssl);
	link_close(&link);
	return resumed;
}

static int version_of(int i)
{
	return i == 0 ? TLS1_2_VERSION : TLS1_3_VERSION;
}

START_TEST(test_sessions_are_resumed)
{
	ck_assert(!resumes(version_of(_i)));
	ck_assert(resumes(version_of(_i)));
	ck_assert(resumes(version_of(_i)));
}
END_TEST

START_TEST(test_renewed_certificates_leave_sessions_alone)
{
	(void)resumes(version_of(_i));
	ck_assert_int_eq(rename(newer.cert, files.cert), 0);
	ck_assert_int_eq(rename(newer.key, files.key), 0);
	ck_assert_int_eq(kvw_tls_look(server, true, why, sizeof(why)), KVW_TLS_RENEWED);
	ck_assert(resumes(version_of(_i)));
}
END_TEST

/* A ticket is accepted for two hours, which its key outlives, and not after that key has gone. */
START_TEST(test_keys_of_tickets_are_rotated)
{
	kvw_tls_rotate_tickets(server, 1);
	(void)resumes(version_of(_i));
	for (int hour = 1; hour <= 2; hour++) {
		SSL_SESSION *first = session;

		SSL_SESSION_up_ref(first);
		kvw_tls_rotate_tickets(server, 1 + hour * HOUR_NS);
		kvw_tls_rotate_tickets(server, 2 + hour * HOUR_NS); /* too early */
		ck_assert(resumes(version_of(_i)));
		SSL_SESSION_free(session);
		session = first;
	}
	kvw_tls_rotate_tickets(server, 1 + 3 * HOUR_NS);
	ck_assert(!resumes(version_of(_i)));
	ck_assert(resumes(version_of(_i)));
}
END_TEST

/* As after an upgrade: tickets of before are good for as long as they would have been. */
START_TEST(test_keys_are_inherited_with_their_age)
{
	struct kvw_tls_passed passed;
	struct kvw_tls *heir = make_server(NULL);

	kvw_tls_rotate_tickets(server, 1);
	kvw_tls_rotate_tickets(server, 1 + HOUR_NS);
	(void)resumes(version_of(_i));
	ck_assert(kvw_tls_pass_tickets(server, 1 + HOUR_NS + HOUR_NS / 2, &passed));
	ck_assert_uint_eq(passed.age_s, 1800);
	ck_assert(!kvw_tls_pass_tickets(client, 1, &passed));
	ck_assert(kvw_tls_inherit_tickets(heir, 5 * HOUR_NS, &passed));
	kvw_tls_destroy(server);
	server = heir;
	ck_assert(resumes(version_of(_i)));
	kvw_tls_rotate_tickets(server, 5 * HOUR_NS + HOUR_NS / 2 - 1); /* too early */
	ck_assert(kvw_tls_pass_tickets(server, 5 * HOUR_NS + HOUR_NS / 2 - 1, &passed));
	ck_assert_uint_eq(passed.len, KVW_TLS_TICKETS_MOST / 3 * 2);
	kvw_tls_rotate_tickets(server, 5 * HOUR_NS + HOUR_NS / 2);
	ck_assert(kvw_tls_pass_tickets(server, 5 * HOUR_NS + HOUR_NS / 2, &passed));
	ck_assert_uint_eq(passed.len, KVW_TLS_TICKETS_MOST);
	ck_assert(resumes(version_of(_i)));
	passed.len--;
	ck_assert(!kvw_tls_inherit_tickets(server, 1, &passed));
	passed.len = 0;
	ck_assert(!kvw_tls_inherit_tickets(server, 1, &passed));
}
END_TEST

/* An upgrade that begins to ask for certificates. */
START_TEST(test_inherited_keys_are_no_way_round_new_authorities)
{
	struct kvw_tls_passed passed;

	(void)resumes(version_of(_i));
	ck_assert(kvw_tls_pass_tickets(server, 1, &passed));
	kvw_tls_destroy(server);
	server = make_server(files.ca);
	ck_assert(kvw_tls_inherit_tickets(server, 1, &passed));
	ck_assert(!resumes(version_of(_i)));
}
END_TEST

/* Or a client that was believed by earlier authorities would go on without a certificate of the present ones. */
START_TEST(test_other_authorities_end_sessions)
{
	char trusted[128];

	kvw_tls_destroy(server);
	snprintf(trusted, sizeof(trusted), "%s/trusted.crt", files.folder);
	ck_assert_int_eq(rename(files.ca, trusted), 0);
	server = make_server(trusted);
	(void)resumes(version_of(_i));
	ck_assert(resumes(version_of(_i)));
	ck_assert_int_eq(rename(newer.ca, trusted), 0);
	ck_assert_int_eq(kvw_tls_look(server, true, why, sizeof(why)), KVW_TLS_RENEWED);
	ck_assert(!resumes(version_of(_i)));
	remove(trusted);
}
END_TEST

/* A client that uses each ticket once, as it should (RFC 8446, C.4), has one for its next connection. */
START_TEST(test_a_resumption_brings_a_new_ticket)
{
	ck_assert(!resumes(TLS1_3_VERSION));
	for (int i = 0; i < 3; i++) {
		unsigned char before[4096];
		const unsigned char *ticket;
		size_t before_len, len;

		SSL_SESSION_get0_ticket(session, &ticket, &before_len);
		ck_assert_uint_le(before_len, sizeof(before));
		memcpy(before, ticket, before_len);
		ck_assert(resumes(TLS1_3_VERSION));
		SSL_SESSION_get0_ticket(session, &ticket, &len);
		ck_assert(len != before_len || memcmp(ticket, before, len) != 0);
	}
}
END_TEST

/* Resumed again and again, a ticket would keep a client's certificate good for ever. */
START_TEST(test_an_ended_client_certificate_ends_sessions)
{
	for (int ended = 0; ended <= 1; ended++) {
		struct files shown;
		struct kvw_tls_client_options options = {
			.insecure = true, .certificate = shown.cert, .key = shown.key};

		files_make_ending(&shown, ended ? -60 : 600);
		kvw_tls_destroy(server);
		kvw_tls_destroy(client);
		server = make_server(shown.ca);
		ck_assert_int_eq(kvw_tls_client_create(&options, why, sizeof(why), &client), KVW_OK);
		lenient = true;
		ck_assert(!resumes(version_of(_i)));
		ck_assert(resumes(version_of(_i)) == !ended);
		files_remove(&shown);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls_sessions");
	TCase *tcase = tcase_create("sessions");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, test_sessions_are_resumed, 0, 2);
	tcase_add_test(tcase, test_a_resumption_brings_a_new_ticket);
	tcase_add_loop_test(tcase, test_renewed_certificates_leave_sessions_alone, 0, 2);
	tcase_add_loop_test(tcase, test_keys_of_tickets_are_rotated, 0, 2);
	tcase_add_loop_test(tcase, test_keys_are_inherited_with_their_age, 0, 2);
	tcase_add_loop_test(tcase, test_inherited_keys_are_no_way_round_new_authorities, 0, 2);
	tcase_add_loop_test(tcase, test_other_authorities_end_sessions, 0, 2);
	tcase_add_loop_test(tcase, test_an_ended_client_certificate_ends_sessions, 0, 2);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
