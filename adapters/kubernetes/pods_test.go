package kubernetes

import (
	"fmt"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// A pod is what the controllers of a cluster make of a manifest.
type pod struct {
	name     string   // its host name
	names    []string // by which the others find it
	template core.PodTemplateSpec
	env      []core.EnvVar // that the controllers add
}

// variable is one of the pod's variables, as its container finds it.
func (p *pod) variable(name string) (value string) {
	for _, v := range append(p.template.Spec.Containers[0].Env, p.env...) {
		if v.Name != name {
			continue
		}
		value = v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == completionIndex {
			value = p.template.Annotations[batch.JobCompletionIndexAnnotation]
		}
	}
	return value
}

const completionIndex = "metadata.annotations['" + batch.JobCompletionIndexAnnotation + "']"

// pods are those that the controllers make: that of Jobs, JobSet's, and Kubeflow's two.
func (m manifests) pods() ([]*pod, error) {
	switch {
	case m["batch/v1 Job"] != nil:
		j := m["batch/v1 Job"].(*batch.Job)
		s, ok := m["v1 Service"].(*core.Service)
		if !ok || s.Spec.ClusterIP != core.ClusterIPNone || s.Spec.Selector["job-name"] != j.Name {
			return nil, fmt.Errorf("no headless service selects the pods of %s", j.Name)
		}
		return indexed(&j.Spec, j.Name, s.Name)
	case m["jobset.x-k8s.io/v1alpha2 JobSet"] != nil:
		s := m["jobset.x-k8s.io/v1alpha2 JobSet"].(*jobset.JobSet)
		return ofJobSet(s.Name, &s.Spec)
	case m["kubeflow.org/v1 PyTorchJob"] != nil:
		return ofPyTorchJob(m["kubeflow.org/v1 PyTorchJob"].(*kubeflow.PyTorchJob))
	case m["trainer.kubeflow.org/v1alpha1 TrainJob"] != nil:
		j := m["trainer.kubeflow.org/v1alpha1 TrainJob"].(*trainer.TrainJob)
		r, ok := m["trainer.kubeflow.org/v1alpha1 TrainingRuntime"].(*trainer.TrainingRuntime)
		if !ok || j.Spec.RuntimeRef.Name != r.Name || *j.Spec.RuntimeRef.Kind != r.Kind {
			return nil, fmt.Errorf("%+v is no runtime here", j.Spec.RuntimeRef)
		}
		return ofTrainJob(j, r)
	}
	return nil, fmt.Errorf("no job")
}

// indexed makes the pods of an indexed Job:
// https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode.
func indexed(s *batch.JobSpec, name, subdomain string) ([]*pod, error) {
	if s.CompletionMode == nil || *s.CompletionMode != batch.IndexedCompletion || *s.Completions != *s.Parallelism ||
		s.Template.Spec.Subdomain != subdomain {
		return nil, fmt.Errorf("the Job %s isn't indexed, or some of its pods wait for others, or have no names below %s", name, subdomain)
	}
	if p := s.Template.Spec.RestartPolicy; p != core.RestartPolicyNever && p != core.RestartPolicyOnFailure {
		return nil, fmt.Errorf("the Job %s has pods with restart policy %q", name, p)
	}
	var all []*pod
	for i := range int(*s.Completions) {
		p := &pod{name: fmt.Sprint(name, "-", i), template: *s.Template.DeepCopy()}
		p.names = []string{p.name + "." + subdomain}
		p.template.Annotations = map[string]string{batch.JobCompletionIndexAnnotation: strconv.Itoa(i)}
		p.env = []core.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: strconv.Itoa(i)}}
		all = append(all, p)
	}
	return all, nil
}

// ofJobSet makes the pods of a JobSet: https://jobset.sigs.k8s.io/docs/concepts. Its controller makes a headless service
// of the same name.
func ofJobSet(name string, s *jobset.JobSetSpec) (all []*pod, err error) {
	for _, r := range s.ReplicatedJobs {
		for i := range r.Replicas {
			template := r.Template.Spec.DeepCopy()
			template.Template.Spec.Subdomain = name
			pods, err := indexed(template, fmt.Sprintf("%s-%s-%d", name, r.Name, i), name)
			if err != nil {
				return nil, err
			}
			all = append(all, pods...)
		}
	}
	return all, nil
}

// ofPyTorchJob makes the pods of a PyTorchJob, each with a headless service of its name:
// https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch.
func ofPyTorchJob(j *kubeflow.PyTorchJob) (all []*pod, err error) {
	size := 0
	for _, r := range j.Spec.PyTorchReplicaSpecs {
		size += int(*r.Replicas)
	}
	perNode, err := strconv.Atoi(*j.Spec.NprocPerNode)
	if err != nil {
		return nil, err
	}
	master := j.Name + "-master-0"
	add := func(name string, rank int, r *kubeflow.ReplicaSpec) error {
		p := &pod{name: name, names: []string{name}, template: *r.Template.DeepCopy()}
		if c := p.template.Spec.Containers; c[0].Name != kubeflow.PyTorchJobDefaultContainerName {
			return fmt.Errorf("the operator ignores the container %s", c[0].Name)
		}
		port := strconv.Itoa(kubeflow.PyTorchJobDefaultPort)
		for name, value := range map[string]string{"PYTHONUNBUFFERED": "1", "MASTER_ADDR": master, "PET_MASTER_ADDR": master,
			"MASTER_PORT": port, "PET_MASTER_PORT": port, "WORLD_SIZE": strconv.Itoa(size * perNode), "RANK": strconv.Itoa(rank),
			"PET_NODE_RANK": strconv.Itoa(rank), "PET_NPROC_PER_NODE": *j.Spec.NprocPerNode, "PET_NNODES": strconv.Itoa(size)} {
			p.env = append(p.env, core.EnvVar{Name: name, Value: value})
		}
		all = append(all, p)
		return nil
	}
	if err := add(master, 0, j.Spec.PyTorchReplicaSpecs[kubeflow.PyTorchJobReplicaTypeMaster]); err != nil {
		return nil, err
	}
	workers := j.Spec.PyTorchReplicaSpecs[kubeflow.PyTorchJobReplicaTypeWorker]
	for i := range int(*workers.Replicas) {
		if err := add(fmt.Sprintf("%s-worker-%d", j.Name, i), i+1, workers); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ofTrainJob makes the pods of a TrainJob whose runtime is for PyTorch: a JobSet of the job's name, whose container "node"
// gets torchrun's variables. https://www.kubeflow.org/docs/components/trainer.
func ofTrainJob(j *trainer.TrainJob, r *trainer.TrainingRuntime) ([]*pod, error) {
	if r.Spec.MLPolicy == nil || r.Spec.MLPolicy.Torch == nil {
		return nil, fmt.Errorf("the runtime isn't for PyTorch")
	}
	s := r.Spec.Template.Spec.DeepCopy()
	for i := range s.ReplicatedJobs {
		job := &s.ReplicatedJobs[i]
		if job.Template.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" ||
			job.Template.Spec.Template.Spec.Containers[0].Name != "node" {
			return nil, fmt.Errorf("the operator doesn't find the container of %s", job.Name)
		}
		mode, n := batch.IndexedCompletion, *j.Spec.Trainer.NumNodes
		job.Replicas = 1
		job.Template.Spec.CompletionMode, job.Template.Spec.Completions, job.Template.Spec.Parallelism = &mode, &n, &n
	}
	all, err := ofJobSet(j.Name, s)
	for i, p := range all {
		for name, value := range map[string]string{"PET_NNODES": strconv.Itoa(len(all)),
			"PET_NPROC_PER_NODE": j.Spec.Trainer.NumProcPerNode.String(), "PET_NODE_RANK": strconv.Itoa(i),
			"PET_MASTER_ADDR": fmt.Sprintf("%s-node-0-0.%s", j.Name, j.Name), "PET_MASTER_PORT": "29500"} {
			p.env = append(p.env, core.EnvVar{Name: name, Value: value})
		}
	}
	return all, err
}
