"""The file of each platform. What only its user can know, such as a role or an image, stands there in capitals."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from phalanx.cluster.catalogue import InstanceType
from phalanx.compat.platforms.shape import Shape

Writer = Callable[[Shape, InstanceType | None], dict[str, Any]]

IMAGE, ROLE = "IMAGE", "ROLE_ARN"
VERTEX_ACCELERATORS = {"A100": "NVIDIA_TESLA_A100", "A100-80GB": "NVIDIA_A100_80GB", "H100": "NVIDIA_H100_80GB"}
SPARK = "16.4.x-gpu-ml-scala2.12"


def skypilot(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """A SkyPilot task; it looks for the cheapest cloud by itself, where none is chosen."""
    resources: dict[str, Any] = {"accelerators": f"{shape.gpu}:{shape.gpus}", "use_spot": shape.spot}
    if shape.where:
        resources["infra"] = shape.where
    if shape.image:
        resources["image_id"] = f"docker:{shape.image}"
    if shape.job.retry_limit:
        resources["job_recovery"] = {"max_restarts_on_errors": shape.job.retry_limit}
    return {
        "name": shape.name,
        "num_nodes": shape.nodes,
        "resources": resources,
        "envs": shape.env,
        "run": shlex.join(shape.job.execution.command),
    }


def sagemaker(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """What CreateTrainingJob of SageMaker takes."""
    stop = {"MaxRuntimeInSeconds": shape.max_run_s}
    request: dict[str, Any] = {
        "TrainingJobName": shape.name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {
            "TrainingImage": shape.image or IMAGE,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": list(shape.job.execution.command),
        },
        "ResourceConfig": {
            "InstanceType": f"ml.{instance.name}" if instance else "INSTANCE_TYPE",
            "InstanceCount": shape.nodes,
            "VolumeSizeInGB": 500,
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{shape.bucket}/{shape.name}"},
        "Environment": shape.env,
        "StoppingCondition": stop,
    }
    if shape.spot:
        stop["MaxWaitTimeInSeconds"] = 2 * shape.max_run_s
        request["EnableManagedSpotTraining"] = True
        request["CheckpointConfig"] = {"S3Uri": f"s3://{shape.bucket}/{shape.name}/checkpoints"}
    if shape.job.retry_limit:
        request["RetryStrategy"] = {"MaximumRetryAttempts": min(shape.job.retry_limit, 30)}
    return request


def vertex(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """A CustomJob of Vertex AI: the first pool is the node of rank 0, the second all others."""
    pool = {
        "machineSpec": {
            "machineType": instance.name if instance else "MACHINE_TYPE",
            "acceleratorType": VERTEX_ACCELERATORS.get(shape.gpu, f"NVIDIA_{shape.gpu}"),
            "acceleratorCount": shape.gpus,
        },
        "containerSpec": {
            "imageUri": shape.image or IMAGE,
            "command": list(shape.job.execution.command),
            "env": [{"name": name, "value": value} for name, value in shape.env.items()],
        },
    }
    pools = [{**pool, "replicaCount": "1"}]
    if shape.nodes > 1:
        pools.append({**pool, "replicaCount": str(shape.nodes - 1)})
    scheduling: dict[str, Any] = {"timeout": f"{shape.max_run_s}s", "restartJobOnWorkerRestart": True}
    if shape.spot:
        scheduling["strategy"] = "SPOT"
    return {"displayName": shape.name, "jobSpec": {"workerPoolSpecs": pools, "scheduling": scheduling}}


def databricks(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """A job of Databricks; the command must be a Python file, which its driver starts."""
    program, *arguments = shape.job.execution.command
    if program.rpartition("/")[2].startswith("python") and arguments:
        program, *arguments = arguments
    availability = "SPOT_WITH_FALLBACK" if shape.spot else "ON_DEMAND"
    return {
        "name": shape.name,
        "tasks": [
            {
                "task_key": "train",
                "max_retries": shape.job.retry_limit,
                "timeout_seconds": shape.max_run_s,
                "spark_python_task": {"python_file": program, "parameters": arguments},
                "new_cluster": {
                    "spark_version": SPARK,
                    "node_type_id": instance.name if instance else "NODE_TYPE",
                    "num_workers": shape.nodes - 1,
                    "aws_attributes": {"availability": availability, "first_on_demand": 1},
                    "spark_env_vars": shape.env,
                },
            }
        ],
    }


def kubeflow(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """A PyTorchJob of Kubeflow's training operator, all of whose pods start together."""
    container = {
        "name": "pytorch",
        "image": shape.image or IMAGE,
        "command": list(shape.job.execution.command),
        "env": [{"name": name, "value": value} for name, value in shape.env.items()],
        "resources": {"limits": {"nvidia.com/gpu": shape.gpus}},
    }
    replica = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    replicas = {"Master": {"replicas": 1, **replica}}
    if shape.nodes > 1:
        replicas["Worker"] = {"replicas": shape.nodes - 1, **replica}
    policy = {
        "backoffLimit": shape.job.retry_limit,
        "activeDeadlineSeconds": shape.max_run_s,
        "schedulingPolicy": {"minAvailable": shape.nodes, "queue": shape.job.queue.replace("/", "-")},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": shape.name},
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
    }


def aws_batch(shape: Shape, instance: InstanceType | None) -> dict[str, Any]:
    """What RegisterJobDefinition of AWS Batch takes: a job on several nodes."""
    needs = [("GPU", shape.gpus), ("VCPU", instance.cpus if instance else 8)]
    memory_mib = int(instance.memory_gb * 1024 * 0.9) if instance else 65_536
    container = {
        "image": shape.image or IMAGE,
        "command": list(shape.job.execution.command),
        "environment": [{"name": name, "value": value} for name, value in shape.env.items()],
        "resourceRequirements": [
            *({"type": kind, "value": str(value)} for kind, value in needs),
            {"type": "MEMORY", "value": str(memory_mib)},
        ],
    }
    return {
        "jobDefinitionName": shape.name,
        "type": "multinode",
        "retryStrategy": {"attempts": min(shape.job.retry_limit + 1, 10)},
        "timeout": {"attemptDurationSeconds": shape.max_run_s},
        "nodeProperties": {
            "numNodes": shape.nodes,
            "mainNode": 0,
            "nodeRangeProperties": [{"targetNodes": "0:", "container": container}],
        },
    }
