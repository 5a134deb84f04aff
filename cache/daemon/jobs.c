/*
 * jobs.c - one thread for work that may block, such as erasing on a disk, so that loops never wait.
 */
#include <stdlib.h>

#include "daemon/server_parts.h"

#define JOBS_MOST 64

struct kvt_jobs {
	struct kvt_objects *objects;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	struct kvt_job *first, *last;
	size_t count;
	bool stop;
};

/* Returns the next job; NULL: the thread is to end. */
static struct kvt_job *next_job(struct kvt_jobs *jobs)
{
	struct kvt_job *job;

	pthread_mutex_lock(&jobs->lock);
	while (jobs->first == NULL && !jobs->stop)
		pthread_cond_wait(&jobs->changed, &jobs->lock);
	job = jobs->first;
	if (job != NULL) {
		jobs->first = job->next;
		jobs->count--;
	}
	pthread_mutex_unlock(&jobs->lock);
	return job;
}

static void *jobs_main(void *arg)
{
	struct kvt_jobs *jobs = arg;
	struct kvt_job *job;

	(void)pthread_setname_np(pthread_self(), "kvtierd-jobs");
	while ((job = next_job(jobs)) != NULL) {
		job->run(job, jobs->objects);
		kvw_server_loop_post(job->wait.loop, &job->wait.mail);
	}
	return NULL;
}

enum kvt_status kvt_jobs_create(struct kvt_objects *objects, struct kvt_jobs **out)
{
	struct kvt_jobs *jobs = calloc(1, sizeof(*jobs));

	if (jobs == NULL)
		return KVT_ENOMEM;
	jobs->objects = objects;
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->changed, NULL);
	if (pthread_create(&jobs->thread, NULL, jobs_main, jobs) != 0) {
		pthread_cond_destroy(&jobs->changed);
		pthread_mutex_destroy(&jobs->lock);
		free(jobs);
		return KVT_ENOMEM;
	}
	*out = jobs;
	return KVT_OK;
}

void kvt_jobs_destroy(struct kvt_jobs *jobs)
{
	if (jobs == NULL)
		return;
	pthread_mutex_lock(&jobs->lock);
	jobs->stop = true;
	pthread_cond_signal(&jobs->changed);
	pthread_mutex_unlock(&jobs->lock);
	pthread_join(jobs->thread, NULL);
	pthread_cond_destroy(&jobs->changed);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
}

bool kvt_jobs_add(struct kvt_jobs *jobs, struct kvt_job *job)
{
	bool room;

	pthread_mutex_lock(&jobs->lock);
	room = jobs->count < JOBS_MOST;
	if (room) {
		job->next = NULL;
		if (jobs->first == NULL)
			jobs->first = job;
		else
			jobs->last->next = job;
		jobs->last = job;
		jobs->count++;
		pthread_cond_signal(&jobs->changed);
	}
	pthread_mutex_unlock(&jobs->lock);
	return room;
}
