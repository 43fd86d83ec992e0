// Command frameworks runs the controllers and webhooks of Kubeflow's training-operator (PyTorchJob), Kubeflow Trainer, KubeRay (RayJob)
// and the MPI operator in one process: `frameworks PROBES-PORT WEBHOOKS-PORT CERTIFICATES`, on loopback, by $KUBECONFIG.
//
// Their own programs cannot run next to one another: they listen at fixed ports of all addresses, and wait for a file below /tmp.
// What is set here is what they set by default. There are two exceptions: KubeRay labels the pods of a replica of several hosts,
// and nobody elects a leader or rotates certificates.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	mpioptions "github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpiclient "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	mpi "github.com/kubeflow/mpi-operator/pkg/controller"
	trainerapi "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainer "github.com/kubeflow/trainer/v2/pkg/controller"
	trainerruntimes "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	trainerwebhooks "github.com/kubeflow/trainer/v2/pkg/webhooks"
	kubeflowapi "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	training "github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
	pytorchwebhook "github.com/kubeflow/training-operator/pkg/webhooks/pytorch"
	rayconfig "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayapi "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	rayutils "github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	batch "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	features "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	runnables "sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	coscheduling "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frameworks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: frameworks PROBES-PORT WEBHOOKS-PORT CERTIFICATES")
	}
	port, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: arguments[2]})
	manager, err := newManager(config, "127.0.0.1:"+arguments[0], server)
	if err != nil {
		return err
	}
	for _, add := range []func(context.Context, ctrl.Manager) error{addTrainingOperator, addTrainer, addKubeRay, addMPIOperator} {
		if err := add(ctx, manager); err != nil {
			return err
		}
	}
	if err := manager.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func newManager(config *rest.Config, probes string, server webhook.Server) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubescheme.AddToScheme, kubeflowapi.AddToScheme, trainerapi.AddToScheme, jobset.AddToScheme, rayapi.AddToScheme,
		rayconfig.AddToScheme, coscheduling.AddToScheme, volcano.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	raysJobs := labels.SelectorFromSet(labels.Set{rayutils.KubernetesCreatedByLabelKey: rayutils.ComponentName})
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{ByObject: map[client.Object]cache.ByObject{&batch.Job{}: {Label: raysJobs}}},
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: probes,
		WebhookServer:          server,
	})
}

func addTrainingOperator(_ context.Context, manager ctrl.Manager) error {
	training.Config.PyTorchInitContainerImage = training.PyTorchInitContainerImageDefault
	training.Config.PyTorchInitContainerTemplateFile = training.PyTorchInitContainerTemplateFileDefault
	training.Config.PyTorchInitContainerMaxTries = training.PyTorchInitContainerMaxTriesDefault
	jobs := pytorch.NewReconciler(manager, common.GenNonGangSchedulerSetupFunc())
	if err := jobs.SetupWithManager(manager, 1); err != nil {
		return err
	}
	return pytorchwebhook.SetupWebhook(manager)
}

func addTrainer(ctx context.Context, manager ctrl.Manager) error {
	runtimes, err := trainerruntimes.New(ctx, manager.GetClient(), manager.GetFieldIndexer())
	if err != nil {
		return err
	}
	if kind, err := trainer.SetupControllers(manager, runtimes, controller.Options{}); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if kind, err := trainerwebhooks.Setup(manager, runtimes); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

func addKubeRay(ctx context.Context, manager ctrl.Manager) error {
	if err := features.DefaultMutableFeatureGate.Set("RayMultiHostIndexing=true"); err != nil {
		return err
	}
	var config rayconfig.Configuration
	none, err := batchscheduler.NewSchedulerManager(ctx, config, manager.GetConfig(), manager.GetClient())
	if err != nil {
		return err
	}
	clusters := ray.NewReconciler(ctx, manager, ray.RayClusterReconcilerOptions{BatchSchedulerManager: none})
	if err := clusters.SetupWithManager(manager, rayconfig.DefaultReconcileConcurrency); err != nil {
		return err
	}
	jobs := ray.NewRayJobReconciler(ctx, manager, ray.RayJobReconcilerOptions{BatchSchedulerManager: none}, config)
	return jobs.SetupWithManager(manager, rayconfig.DefaultReconcileConcurrency)
}

func addMPIOperator(ctx context.Context, manager ctrl.Manager) error {
	if err := mpischeme.AddToScheme(kubescheme.Scheme); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(manager.GetConfig())
	if err != nil {
		return err
	}
	jobs, err := mpiclient.NewForConfig(manager.GetConfig())
	if err != nil {
		return err
	}
	options := mpioptions.NewServerOption()
	options.AddFlags(flag.NewFlagSet("mpi-operator", flag.ContinueOnError)) // which sets the defaults
	ofKube, ofJobs := informers.NewSharedInformerFactory(kube, 0), mpiinformers.NewSharedInformerFactory(jobs, 0)
	operator, err := mpi.NewMPIJobController(
		ctx, kube, jobs, nil, nil,
		ofKube.Core().V1().ConfigMaps(), ofKube.Core().V1().Secrets(), ofKube.Core().V1().Services(), ofKube.Batch().V1().Jobs(),
		ofKube.Core().V1().Pods(), ofKube.Scheduling().V1().PriorityClasses(), ofJobs.Kubeflow().V2beta1().MPIJobs(),
		options,
	)
	if err != nil {
		return err
	}
	ofKube.Start(ctx.Done())
	ofJobs.Start(ctx.Done())
	return manager.Add(runnables.RunnableFunc(func(ctx context.Context) error { return operator.Run(2, ctx.Done()) }))
}
