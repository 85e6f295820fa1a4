package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
)

// kinds are the folders of the manifests.
var kinds = []string{"job", "jobset", "pytorchjob", "trainjob"}

// nodes and ranks are the size of each job there: its pods, and the ranks in each.
const nodes, ranks = 2, 4

// manifests is what a cluster gets: by API version and kind, such as "batch/v1 Job".
type manifests map[string]any

// build has Kustomize build a folder of the manifests with a secret, after edit has changed them, and decodes the
// result.
func build(kind, dir string, edit func(text []byte) []byte) (manifests, error) {
	if err := os.CopyFS(dir, os.DirFS("../../examples/clusters/kubernetes")); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, kind, kind+".yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, edit(text), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "secret", "job.secret"), []byte(secure.Generate()), 0o600)
	}
	if err != nil {
		return nil, err
	}
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, kind))
	if err != nil {
		return nil, err
	}
	m := manifests{}
	for _, r := range all.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		name := r.GetApiVersion() + " " + r.GetKind()
		if m[name], err = decode(name, text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

func unchanged(text []byte) []byte { return text }

// decode reads an object of a kind, which may have no field and no value that the kind doesn't know.
func decode(kind string, text []byte) (any, error) {
	object := newObject(kind)
	if object == nil {
		return nil, errors.New("no type of this kind")
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return nil, err
	}
	return object, checkSchema(kind, text)
}

func newObject(kind string) any {
	switch kind {
	case "v1 Secret":
		return new(core.Secret)
	case "v1 Service":
		return new(core.Service)
	case "networking.k8s.io/v1 NetworkPolicy":
		return new(networking.NetworkPolicy)
	case "batch/v1 Job":
		return new(batch.Job)
	case "jobset.x-k8s.io/v1alpha2 JobSet":
		return new(jobset.JobSet)
	case "kubeflow.org/v1 PyTorchJob":
		return new(kubeflow.PyTorchJob)
	case "trainer.kubeflow.org/v1alpha1 TrainJob":
		return new(trainer.TrainJob)
	case "trainer.kubeflow.org/v1alpha1 TrainingRuntime":
		return new(trainer.TrainingRuntime)
	}
	return nil
}

// TestManifests builds each folder, and checks that the parts of its pods fit together.
func TestManifests(t *testing.T) {
	ran := testutil.Ran(t, "Kubernetes' API types")
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	ran.SetVersion(version)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			m, err := build(kind, t.TempDir(), unchanged)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := m.pods()
			if err != nil {
				t.Fatal(err)
			}
			if len(pods) != nodes {
				t.Fatalf("%d pods, want %d", len(pods), nodes)
			}
			for _, p := range pods {
				policy := m["networking.k8s.io/v1 NetworkPolicy"].(*networking.NetworkPolicy)
				if err := errors.Join(p.check(m["v1 Secret"].(*core.Secret)), p.admits(policy)); err != nil {
					t.Errorf("%s: %v", p.name, err)
				}
				p.template.Labels = map[string]string{"chorus-job": "other"}
				if p.admits(policy) == nil {
					t.Errorf("%s: the policy admits the pods of another job", p.name)
				}
			}
		})
	}
}

// TestPages decodes the manifests on the pages.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			for object := range bytes.SplitSeq(block[1], []byte("\n---\n")) {
				var kind struct{ APIVersion, Kind string }
				if err := yaml.Unmarshal(object, &kind); err != nil {
					t.Errorf("%s: %v", page, err)
				}
				if kind.APIVersion == "" {
					continue // of something else
				}
				found++
				if _, err := decode(kind.APIVersion+" "+kind.Kind, object); err != nil {
					t.Errorf("%s: %s: %v", page, kind.Kind, err)
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d", found)
	}
}

// TestMistakes makes mistakes in the manifests, which must be found.
func TestMistakes(t *testing.T) {
	for _, mistake := range []struct{ kind, old, new, want string }{
		{"job", "livenessProbe:", "livenesProbe:", `unknown field "livenesProbe"`},
		{"job", "sizeLimit: 2Gi", "sizeLimit: 2Gb", "quantities must match"},
		{"job", "completions: 2", "completions: two", "cannot unmarshal string"},
		{"jobset", "maxRestarts: 3", "restarts: 3", `unknown field "restarts"`},
		{"jobset", "failurePolicy: {maxRestarts: 3}", "successPolicy: {operator: Most}", "spec.successPolicy.operator"},
		{"pytorchjob", `nprocPerNode: "4"`, "nprocPerNode: 4", "spec.nprocPerNode in body must be of type string"},
		{"pytorchjob", "containers:", "initContainers:", "template.spec.containers"},
		{"trainjob", "kind: TrainingRuntime, name: chorus", "kind: TrainingRuntime", "runtimeRef.name"},
		{"trainjob", "numProcPerNode: 4\n", "numProcsPerNode: 4\n", `unknown field "numProcsPerNode"`},
	} {
		edited := false
		_, err := build(mistake.kind, t.TempDir(), func(text []byte) []byte {
			edited = bytes.Contains(text, []byte(mistake.old))
			return bytes.ReplaceAll(text, []byte(mistake.old), []byte(mistake.new))
		})
		if !edited || err == nil || !strings.Contains(err.Error(), mistake.want) {
			t.Errorf("%s with %q: %v, want %q", mistake.kind, mistake.new, err, mistake.want)
		}
	}
}

// check says what doesn't fit together in a pod.
func (p *pod) check(secret *core.Secret) error {
	s := &p.template.Spec
	if len(s.Containers) != 1 {
		return fmt.Errorf("%d containers", len(s.Containers))
	}
	c := &s.Containers[0]
	volumes := map[string]core.VolumeSource{} // by where they are mounted
	for _, mount := range c.VolumeMounts {
		for _, v := range s.Volumes {
			if v.Name == mount.Name {
				volumes[mount.MountPath] = v.VolumeSource
			}
		}
	}
	if len(volumes) != len(s.Volumes) || len(volumes) != len(c.VolumeMounts) {
		return fmt.Errorf("volumes %v are mounted by %v", s.Volumes, c.VolumeMounts)
	}

	file := p.variable("CHORUS_SECRET_FILE")
	from := volumes[filepath.Dir(file)].Secret
	if from == nil || from.SecretName != secret.Name || len(secret.Data[filepath.Base(file)]) == 0 {
		return fmt.Errorf("%s is no file of the secret %s", file, secret.Name)
	}
	if user := s.SecurityContext; from.DefaultMode == nil || *from.DefaultMode != 0o400 || user.FSGroup == nil {
		return fmt.Errorf("the secret is mounted with mode %v for the group %v", from.DefaultMode, user.FSGroup)
	}

	memory := c.Resources.Limits.Memory()
	shm := volumes["/dev/shm"].EmptyDir
	if shm == nil || shm.Medium != core.StorageMediumMemory || shm.SizeLimit == nil || shm.SizeLimit.Cmp(*memory) >= 0 {
		return fmt.Errorf("/dev/shm is %v, and the limit of memory %v", shm, memory)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().Cmp(*memory) != 0 {
		return fmt.Errorf("resources %v", c.Resources)
	}
	if volumes["/tmp"].EmptyDir == nil && *c.SecurityContext.ReadOnlyRootFilesystem {
		return fmt.Errorf("no file can be written")
	}

	if c.LivenessProbe == nil || c.LivenessProbe.HTTPGet == nil {
		return fmt.Errorf("no liveness probe by HTTP")
	}
	if at := fmt.Sprint("0.0.0.0:", p.probePort()); !strings.Contains(strings.Join(c.Command, " "), "--http "+at) {
		return fmt.Errorf("the probe asks %s, and the command is %q", at, c.Command)
	}
	if c.Image != "registry.example.com/train:v1" {
		return fmt.Errorf("the image is %s, not that of the kustomization", c.Image)
	}
	return nil
}

// admits says what is wrong with the policy for a pod: all pods of the job reach each other at any port, and others
// reach the launcher's page only.
func (p *pod) admits(policy *networking.NetworkPolicy) error {
	selects := func(s *meta.LabelSelector) bool {
		selector, err := meta.LabelSelectorAsSelector(s)
		return err == nil && s != nil && selector.Matches(labels.Set(p.template.Labels))
	}
	if !selects(&policy.Spec.PodSelector) || len(policy.Spec.PodSelector.MatchLabels) == 0 ||
		len(policy.Spec.PolicyTypes) != 1 || policy.Spec.PolicyTypes[0] != networking.PolicyTypeIngress {
		return fmt.Errorf("the policy %+v isn't for the pod's labels %v", policy.Spec, p.template.Labels)
	}
	job := false
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.NamespaceSelector == nil && selects(from.PodSelector) && len(rule.Ports) == 0 {
				job = true
				continue
			}
			port := p.template.Spec.Containers[0].LivenessProbe.HTTPGet.Port
			if len(rule.Ports) != 1 || rule.Ports[0].Port == nil || *rule.Ports[0].Port != port ||
				from.NamespaceSelector == nil || from.PodSelector == nil {
				return fmt.Errorf("%+v is admitted at %+v", from, rule.Ports)
			}
		}
		if len(rule.From) == 0 {
			return fmt.Errorf("everyone is admitted at %+v", rule.Ports)
		}
	}
	if !job {
		return errors.New("the pods of a job don't reach each other")
	}
	return nil
}

// probePort is the port that the liveness probe asks.
func (p *pod) probePort() int32 {
	c := &p.template.Spec.Containers[0]
	port := c.LivenessProbe.HTTPGet.Port
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, named := range c.Ports {
		if named.Name == port.StrVal {
			return named.ContainerPort
		}
	}
	return 0
}
